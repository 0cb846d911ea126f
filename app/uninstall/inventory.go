package uninstall

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Kind is a kind of object, as in the path of the API server.
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

func longhornKind(resource string) Kind {
	return kind(longhorn.GroupName, longhorn.SchemeGroupVersion.Version, resource).inNamespace()
}

// The kinds that an installation consists of.
var (
	volumes          = longhornKind("volumes")
	engines          = longhornKind("engines")
	replicas         = longhornKind("replicas")
	attachments      = longhornKind("volumeattachments")
	instanceManagers = longhornKind("instancemanagers")
	shareManagers    = longhornKind("sharemanagers")
	snapshots        = longhornKind("snapshots")
	nodes            = longhornKind("nodes")
	globalSettings   = longhornKind("settings")

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
	// kubeAttachments are the attachments that the CSI controller maintained for kubelets. Their finalizers belong to
	// it.
	kubeAttachments = kind("storage.k8s.io", "v1", "volumeattachments")
)

// dataKinds are the kinds that represent data, in the order in which they may be removed. The record of the members is
// removed after the replicas, so a volume is visible until the end.
var dataKinds = []Kind{replicas, engines, volumes}

// otherKinds are the other kinds of this product. Kinds that only another version has are found by their definitions.
var otherKinds = []Kind{snapshots, shareManagers, attachments, instanceManagers, nodes, globalSettings}

// readOrder are the kinds that are read, in this order. Data is read after the components that create it. So if these
// components were seen to be gone, everything that they created is seen, too.
var readOrder = slices.Concat([]Kind{
	definitions, namespaces, kubeNodes, configMaps, storageClasses, deployments, replicaSets, pods, services, daemonSets, budgets,
	policies, policyBindings, drivers, clusterRoles, clusterBindings, kubeAttachments, persistentVolumes,
}, dataKinds, otherKinds)

// isReadEverywhere reports whether objects of a kind are read in all namespaces, so that an object in another than
// the given namespace is found.
func (k Kind) isReadEverywhere() bool {
	return k.Namespaced && (k.Group == longhorn.GroupName || k == daemonSets)
}

// isInstallation reports whether an object shows that this product is installed in the object's namespace.
func isInstallation(k Kind, o Object) bool {
	if k != daemonSets {
		return k.Group == longhorn.GroupName
	}
	return o.Labels[types.InstallationLabel] == types.InstallationValue ||
		o.Name == types.AppManager && o.Labels[types.LabelApp] == types.AppManager
}

// belongsToInstallation reports whether an object belongs to the installation.
func belongsToInstallation(k Kind, o Object, namespace string) bool {
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
		return o.Name == types.StorageClassConfigMap || o.Name == types.StorageClassTemplate // the namespace's deletion removes the others
	case pods:
		// they are deleted after their creators; the deletion of the namespace removes the others
		return isInstallationPod(o)
	}
	return k.Group == longhorn.GroupName
}

// isInstallationPod reports whether a pod belongs to a workload of this product, is an instance manager, or serves a
// share.
func isInstallationPod(o Object) bool {
	return slices.Contains([]string{types.AppManager, types.AppCSIController, types.AppCSIPlugin}, o.Labels[types.LabelApp]) ||
		o.Labels[types.LabelManagedBy] == types.ManagedByManager || o.Labels[types.LabelComponent] == types.ComponentShareManager
}

// isInstallationFinalizer reports whether the installation set a finalizer of an object. PersistentVolumes also have
// finalizers of Kubernetes; the CSI controller set only these two.
func isInstallationFinalizer(k Kind, finalizer string) bool {
	switch k {
	case persistentVolumes:
		return finalizer == provisionerFinalizer || finalizer == attacherFinalizer
	case kubeAttachments:
		return finalizer == types.Finalizer || strings.HasPrefix(finalizer, "external-attacher/")
	}
	return finalizer == types.Finalizer
}

// The finalizers of the libraries in the CSI controller. The second one contains the driver's name.
const (
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	attacherFinalizer    = "external-attacher/driver-longhorn-io"
)

// unknown returns the kinds of this product that this version does not know, from their definitions.
func unknown(definitions []Object) []Kind {
	var kinds []Kind
	for _, d := range definitions {
		resource, group, _ := strings.Cut(d.Name, ".")
		if k := longhornKind(resource); group == longhorn.GroupName && !slices.Contains(readOrder, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// installed are the names of cluster-scoped objects without a label of this product.
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
