package queue

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Handler adds, for each event of a cache of T, the keys that keysOf finds: on an
// update those of the old and of the new object, so that the owner that the object has
// left learns of it too; on a deletion those of the last object known. A resync without
// change adds nothing, and a zero key is none. keysOf must neither block nor modify the
// object.
func Handler[T metav1.Object, K comparable](q *Queue[K], keysOf func(T) []K) cache.ResourceEventHandler {
	var none K
	add := func(obj any) {
		for _, key := range keysOf(unwrap[T](obj)) {
			if key != none {
				q.Add(key)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: add,
		UpdateFunc: func(before, after any) {
			// Without versions (a fake) no change can be told from a resync.
			v := unwrap[T](after).GetResourceVersion()
			if v != "" && unwrap[T](before).GetResourceVersion() == v {
				return
			}
			add(before)
			add(after)
		},
		DeleteFunc: add,
	}
}

// Name is the keysOf of a controller whose keys are the names of its objects.
func Name[T metav1.Object](obj T) []string { return []string{obj.GetName()} }

// unwrap takes the object out of the tombstone that a cache leaves of an object
// whose deletion it missed.
func unwrap[T any](obj any) T {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	t, ok := obj.(T)
	if !ok {
		panic(fmt.Sprintf("BUG: handler of %T got %T", t, obj))
	}
	return t
}
