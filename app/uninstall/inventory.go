package uninstall

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Kind is a kind of objects, as the API server's path names it.
type Kind struct {
	schema.GroupVersionResource
	Namespaced bool
}

func kind(group, version, resource string) Kind {
	return Kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}}
}

func (k Kind) inNamespace() Kind {
	k.Namespaced = true
	return k
}

func ours(resource string) Kind {
	return kind(longhorn.GroupName, longhorn.SchemeGroupVersion.Version, resource).inNamespace()
}

// The kinds that an installation consists of.
var (
	volumes          = ours("volumes")
	engines          = ours("engines")
	replicas         = ours("replicas")
	attachments      = ours("volumeattachments")
	instanceManagers = ours("instancemanagers")
	shareManagers    = ours("sharemanagers")
	nodes            = ours("nodes")
	settings         = ours("settings")

	definitions       = kind("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	namespaces        = kind("", "v1", "namespaces")
	kubeNodes         = kind("", "v1", "nodes")
	pods              = kind("", "v1", "pods").inNamespace()
	services          = kind("", "v1", "services").inNamespace()
	daemonSets        = kind("apps", "v1", "daemonsets").inNamespace()
	deployments       = kind("apps", "v1", "deployments").inNamespace()
	replicaSets       = kind("apps", "v1", "replicasets").inNamespace()
	budgets           = kind("policy", "v1", "poddisruptionbudgets").inNamespace()
	policies          = kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
	policyBindings    = kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings")
	configMaps        = kind("", "v1", "configmaps").inNamespace()
	storageClasses    = kind("storage.k8s.io", "v1", "storageclasses")
	drivers           = kind("storage.k8s.io", "v1", "csidrivers")
	clusterRoles      = kind("rbac.authorization.k8s.io", "v1", "clusterroles")
	clusterBindings   = kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
	persistentVolumes = kind("", "v1", "persistentvolumes")
	// kubeAttachments are what the CSI controller kept for kubelets; their finalizers are its own.
	kubeAttachments = kind("storage.k8s.io", "v1", "volumeattachments")
)

// data are the kinds that stand for data or its record, in the order in which they may end: the
// record of who holds the data outlives the holder, so a volume is seen until the last moment.
var data = []Kind{replicas, engines, volumes}

// rest are our other kinds; kinds of another version are found by their definitions.
var rest = []Kind{shareManagers, attachments, instanceManagers, nodes, settings}

// all are the kinds that are read, in their order: data after what makes it, so that when the makers
// were seen to be gone, what they made is seen too.
var all = slices.Concat([]Kind{
	definitions, namespaces, kubeNodes, configMaps, storageClasses, deployments, replicaSets, pods, services, daemonSets, budgets,
	policies, policyBindings, drivers, clusterRoles, clusterBindings, kubeAttachments, persistentVolumes,
}, data, rest)

// isReadEverywhere tells whether objects of a kind are read in all namespaces, so that one in
// another than the given namespace is seen.
func (k Kind) isReadEverywhere() bool {
	return k.Namespaced && (k.Group == longhorn.GroupName || k == daemonSets)
}

// isInstallation tells whether an object, in whatever namespace, shows that we are installed there.
func isInstallation(k Kind, o Object) bool {
	if k != daemonSets {
		return k.Group == longhorn.GroupName
	}
	return o.Labels[types.InstallationLabel] == types.InstallationValue ||
		o.Name == types.AppManager && o.Labels[types.LabelApp] == types.AppManager
}

// isOurs tells whether an object outside of our own kinds belongs to the installation.
func isOurs(k Kind, o Object, namespace string) bool {
	switch k {
	case policies, policyBindings, clusterRoles, clusterBindings:
		// deploy/uninstall.yaml has a namespace and an account of its own, which stay.
		return slices.Contains(installed[k], o.Name)
	case kubeAttachments, persistentVolumes:
		return o.Provisioner == types.DriverName
	case storageClasses:
		return o.Provisioner == types.DriverName && o.Labels[types.InstallationLabel] == types.InstallationValue
	case drivers:
		return o.Name == types.DriverName && o.Labels[types.InstallationLabel] == types.InstallationValue
	case definitions:
		return strings.HasSuffix(o.Name, "."+longhorn.GroupName) && o.Labels[types.InstallationLabel] == types.InstallationValue
	case namespaces:
		return o.Name == namespace && o.Labels[types.InstallationLabel] == types.InstallationValue
	case services, daemonSets, deployments, budgets:
		return strings.HasPrefix(o.Name, "longhorn-") || o.Labels[types.LabelManagedBy] == types.ManagedByManager
	case replicaSets:
		return o.Labels[types.LabelApp] == types.AppCSIController
	case configMaps:
		return o.Name == types.StorageClassConfigMap || o.Name == types.StorageClassTemplate // the others end with the namespace
	case pods:
		return isPodOurs(o) // they are deleted with what made them; the namespace's end takes the others
	}
	return k.Group == longhorn.GroupName
}

// isPodOurs tells whether a pod is of our workloads, is an instance manager or serves a share.
func isPodOurs(o Object) bool {
	return slices.Contains([]string{types.AppManager, types.AppCSIController, types.AppCSIPlugin}, o.Labels[types.LabelApp]) ||
		o.Labels[types.LabelManagedBy] == types.ManagedByManager || o.Labels[types.LabelComponent] == types.ComponentShareManager
}

// isFinalizerOurs tells whether a finalizer of an object was set by the installation. On
// PersistentVolumes, which have those of Kubernetes too, the CSI controller set these two alone.
func isFinalizerOurs(k Kind, finalizer string) bool {
	switch k {
	case persistentVolumes:
		return finalizer == provisionerFinalizer || finalizer == attacherFinalizer
	case kubeAttachments:
		return finalizer == types.Finalizer || strings.HasPrefix(finalizer, "external-attacher/")
	}
	return finalizer == types.Finalizer
}

// The finalizers of the libraries that the CSI controller is made of; the latter has the driver's
// name in it.
const (
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	attacherFinalizer    = "external-attacher/driver-longhorn-io"
)

// unknown are kinds of ours that this version does not know, by their definitions.
func unknown(definitions []Object) []Kind {
	var kinds []Kind
	for _, d := range definitions {
		resource, group, _ := strings.Cut(d.Name, ".")
		if k := ours(resource); group == longhorn.GroupName && !slices.Contains(all, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// installed are the names of cluster-scoped objects without a label of ours.
var installed = map[Kind][]string{
	policies:        policyNames,
	policyBindings:  policyNames,
	clusterRoles:    roleNames,
	clusterBindings: roleNames,
}

var roleNames = []string{"longhorn-manager", "longhorn-manager-leader", "longhorn-manager-storageclass", "longhorn-csi-controller"}

var policyNames = []string{
	"longhorn-no-adoption", "longhorn-keep-settings", "longhorn-keep-disks", "longhorn-keep-engines", "longhorn-keep-installation",
	"longhorn-keep-attached-volumes", "longhorn-keep-claimed-volumes",
	"longhorn-keep-last-copies", "longhorn-keep-instance-managers", "longhorn-keep-attachments", "longhorn-node-scope", "longhorn-leader-scope", "longhorn-disk-rules", "longhorn-setting-values",
}
