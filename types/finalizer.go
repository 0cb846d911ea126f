package types

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HasFinalizer reports whether an object has this project's finalizer.
func HasFinalizer(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), Finalizer) }

// AddFinalizer adds this project's finalizer to an object, unless it has it already.
func AddFinalizer(o metav1.Object) {
	if !HasFinalizer(o) {
		o.SetFinalizers(append(o.GetFinalizers(), Finalizer))
	}
}

// RemoveFinalizer removes this project's finalizer from an object and keeps other finalizers.
func RemoveFinalizer(o metav1.Object) {
	o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == Finalizer }))
}
