package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var (
	crds     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	settings = longhorn.SchemeGroupVersion.WithResource("settings")
)

// checkForeign refuses a cluster that another Longhorn was installed in: its CRDs carry
// no label of ours, and objects of it may outlive them. Nothing is written.
func checkForeign(ctx context.Context, client metadata.Interface, namespace string) error {
	definitions, err := client.Resource(crds).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for another Longhorn's CRDs: %w", err)
	}
	var foreign []string
	for _, d := range definitions.Items {
		if strings.HasSuffix(d.Name, "."+longhorn.GroupName) && d.Labels[types.InstallationLabel] != types.InstallationValue {
			foreign = append(foreign, d.Name)
		}
	}
	if len(foreign) > 0 {
		return foreignError("its CRDs", foreign)
	}

	objects, err := client.Resource(settings).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for another Longhorn's settings: %w", err)
	}
	for _, o := range objects.Items {
		if _, ours := types.DefinitionOf(types.SettingName(o.Name)); !ours {
			foreign = append(foreign, o.Name)
		}
	}
	if len(foreign) > 0 {
		return foreignError("its settings", foreign)
	}
	return nil
}

func foreignError(what string, names []string) error {
	slices.Sort(names)
	return fmt.Errorf("another Longhorn is installed in this cluster: found %s %s. "+
		"Nothing was changed. Uninstall it, with its data moved away, before this one is started", what, strings.Join(names, ", "))
}
