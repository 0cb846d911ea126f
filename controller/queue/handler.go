package queue

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Handler adds the keys that keysOf returns for each event of a cache of T:
//
//   - On an update, these are the keys of the old and of the new object. So the former owner of the object is informed,
//     too.
//   - On a deletion, these are the keys of the last known object.
//   - A resync without change adds nothing.
//
// A zero key is ignored. keysOf must neither block nor modify the object.
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
			// Without versions (a fake), a change cannot be distinguished from a resync.
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

// Name is the keysOf of a controller with the names of its objects as keys.
func Name[T metav1.Object](obj T) []string { return []string{obj.GetName()} }

// unwrap takes the object out of the tombstone that a cache creates after it has missed a deletion.
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
