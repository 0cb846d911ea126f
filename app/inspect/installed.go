package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// NotInstalled is the error of a command for a namespace in which the user can see no installation.
type NotInstalled struct {
	Namespace string
	// Unread are the kinds that the user may not read there.
	Unread []string
	// Elsewhere are the namespaces that have an installation, as far as the user can see.
	Elsewhere []string
	// Hidden: the cluster has the CSIDriver of an installation, but the user may not read the installation's
	// namespace.
	Hidden bool
}

func (e *NotInstalled) Error() string {
	text := fmt.Sprintf("no installation is in namespace %q", e.Namespace)
	if len(e.Unread) > 0 {
		text = fmt.Sprintf("no installation is visible in namespace %q: your account may not read %s there", e.Namespace, strings.Join(e.Unread, ", "))
	}
	return text + e.where()
}

// where returns the last part of an error: the namespaces with an installation.
func (e *NotInstalled) where() string {
	switch {
	case e.Hidden:
		return fmt.Sprintf("; CSIDriver %s exists, so an installation is in a namespace that your account may not read", types.DriverName)
	case len(e.Elsewhere) == 0:
		return ""
	}
	return fmt.Sprintf("; namespace %s has one: use -n %s", strings.Join(e.Elsewhere, ", "), e.Elsewhere[0])
}

// markKind is a kind of object that every installation has.
type markKind struct {
	resource string
	list     func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)
}

// marks returns the kinds that show that there is an installation. The DaemonSet exists from the start, settings and
// nodes once a daemon has run.
func (c Cluster) marks() []markKind {
	ours := c.Longhorn.LonghornV1beta2()
	return []markKind{
		{explain.ResourceDaemonSets, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = types.LabelApp + "=" + types.AppManager + "," + types.InstallationLabel
			return c.Kube.AppsV1().DaemonSets(namespace).List(ctx, o)
		}},
		{explain.ResourceSettings, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return ours.Settings(namespace).List(ctx, o)
		}},
		{explain.ResourceNodes, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return ours.Nodes(namespace).List(ctx, o)
		}},
		{explain.ResourceVolumes, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return ours.Volumes(namespace).List(ctx, o)
		}},
	}
}

// CheckInstalled returns *NotInstalled if the user can see no installation in the namespace. The error contains the
// namespaces that have one.
func (c Cluster) CheckInstalled(ctx context.Context) error {
	here, unread, err := c.installed(ctx, c.Namespace)
	if err != nil || len(here) > 0 {
		return err
	}
	missing := c.elsewhere(ctx)
	missing.Namespace, missing.Unread = c.Namespace, unread
	return missing
}

// elsewhere returns the namespaces with an installation. A user who may not read all namespaces may still have rights
// in the default one. It ignores errors, because its text is an addition to another error.
func (c Cluster) elsewhere(ctx context.Context) *NotInstalled {
	for _, namespace := range []string{corev1.NamespaceAll, types.Namespace} {
		found, unread, err := c.installed(ctx, namespace)
		switch {
		case err == nil && len(found) > 0:
			return &NotInstalled{Elsewhere: slices.DeleteFunc(found, func(name string) bool { return name == c.Namespace })}
		case err == nil && namespace == corev1.NamespaceAll && len(unread) == 0: // no namespace has one
			return &NotInstalled{}
		}
	}
	driver, err := c.Kube.StorageV1().CSIDrivers().Get(ctx, types.DriverName, metav1.GetOptions{})
	return &NotInstalled{Hidden: err == nil && driver.Labels[types.InstallationLabel] != ""}
}

// installed returns the namespaces with a visible installation, among one or all namespaces, and the kinds that the
// user may not read. A cluster that does not know the kinds of this product has no objects of them.
func (c Cluster) installed(ctx context.Context, namespace string) (found, unread []string, err error) {
	for _, kind := range c.marks() {
		list, err := kind.list(ctx, namespace, metav1.ListOptions{Limit: pageSize})
		switch {
		case apierrors.IsForbidden(err):
			unread = append(unread, kind.resource)
			continue
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("list %s: %w", kind.resource, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err == nil && !slices.Contains(found, object.GetNamespace()) {
				found = append(found, object.GetNamespace())
			}
			return err
		}); err != nil {
			return nil, nil, err
		}
		if len(found) > 0 {
			break
		}
	}
	slices.Sort(found)
	return found, unread, nil
}
