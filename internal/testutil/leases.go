package testutil

import (
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// NewLeases is a cluster with versions of Leases, as an API server has them: it refuses a write that is based on an
// earlier version. An election needs this. The fake clientset alone accepts such a write, so a process that gives its
// Lease back could overwrite the Lease of its successor.
func NewLeases(objects ...runtime.Object) *fake.Clientset {
	kube := fake.NewClientset(objects...)
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	kube.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		update := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		now, err := kube.Tracker().Get(leases, update.Namespace, update.Name)
		if err != nil {
			return true, nil, err
		}
		version := now.(*coordinationv1.Lease).ResourceVersion
		if version != update.ResourceVersion {
			return true, nil, apierrors.NewConflict(leases.GroupResource(), update.Name, errors.New("it is of version "+version))
		}
		update.ResourceVersion += "1"
		return false, nil, nil
	})
	return kube
}
