package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// mark is a kind of object by which an installation of Longhorn is recognized. Objects of this project, of any release,
// have types.InstallationLabel. An object without the label belongs to another Longhorn.
type mark struct {
	what      string // in messages
	resource  schema.GroupVersionResource
	inCluster bool // the objects have no namespace
	isMark    func(metav1.PartialObjectMetadata) bool
	// optional: if the role does not allow the daemon to list the objects, it continues. The role of an earlier or
	// later release may be applied while this daemon runs.
	optional bool
}

// marks are objects that every installation has, whatever its settings. A setting with an unknown name is not a mark:
// another release of this project may know it.
var marks = []mark{
	{
		what: "its CRDs", resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, inCluster: true,
		isMark: func(o metav1.PartialObjectMetadata) bool { return strings.HasSuffix(o.Name, "."+longhorn.GroupName) },
	},
	{
		what: "its CSIDriver", resource: schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"}, inCluster: true, optional: true,
		isMark: func(o metav1.PartialObjectMetadata) bool { return o.Name == types.DriverName },
	},
	{
		what: "its DaemonSets", resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, optional: true,
		isMark: isLonghornWorkload,
	},
	{
		what: "its Deployments", resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, optional: true,
		isMark: isLonghornWorkload,
	},
	{
		what: "the record of its version in the settings", resource: longhorn.SchemeGroupVersion.WithResource("settings"),
		isMark: func(o metav1.PartialObjectMetadata) bool { return slices.Contains(versionSettings, o.Name) },
	},
}

// versionSettings are the settings in which another Longhorn's manager records its version and images. Users cannot set
// them. A release of this project that creates a setting with one of these names must put types.InstallationLabel on
// it.
var versionSettings = []string{
	"crd-api-version", "current-longhorn-version", "default-backing-image-manager-image", "default-engine-image",
	"default-instance-manager-image", "latest-longhorn-version", "stable-longhorn-versions",
}

// isLonghornWorkload reports whether a workload has the label that Longhorn's manifest and chart put on each of their
// workloads.
func isLonghornWorkload(o metav1.PartialObjectMetadata) bool {
	return o.Labels["app.kubernetes.io/name"] == "longhorn"
}

// checkForeign refuses a cluster in which another Longhorn was installed. It writes nothing.
func checkForeign(ctx context.Context, client metadata.Interface, namespace string) error {
	for _, m := range marks {
		found, err := m.find(ctx, client, namespace)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return foreignError(m.what, found)
		}
	}
	return nil
}

// find returns the names of the objects that another Longhorn marked.
func (m mark) find(ctx context.Context, client metadata.Interface, namespace string) ([]string, error) {
	if m.inCluster {
		namespace = metav1.NamespaceAll
	}
	list, err := client.Resource(m.resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if m.optional && apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for another Longhorn by %s: %w", m.what, err)
	}
	var found []string
	for _, o := range list.Items {
		if m.isMark(o) && o.Labels[types.InstallationLabel] != types.InstallationValue {
			found = append(found, o.Name)
		}
	}
	return found, nil
}

// errForeign is permanent: it does not help to wait.
var errForeign = errors.New("another Longhorn is installed in this cluster")

func foreignError(what string, names []string) error {
	slices.Sort(names)
	return fmt.Errorf("%w: found %s %s. "+
		"Nothing was changed. Before you start this one, move the data of the other one away and uninstall it", errForeign, what, strings.Join(names, ", "))
}
