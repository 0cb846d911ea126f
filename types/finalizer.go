package types

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HasFinalizer tells whether an object carries this project's finalizer.
func HasFinalizer(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), Finalizer) }

// AddFinalizer gives an object this project's finalizer, once.
func AddFinalizer(o metav1.Object) {
	if !HasFinalizer(o) {
		o.SetFinalizers(append(o.GetFinalizers(), Finalizer))
	}
}

// RemoveFinalizer takes this project's finalizer from an object and leaves others.
func RemoveFinalizer(o metav1.Object) {
	o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == Finalizer }))
}
