package queue

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Changes is like Handler, for keys that are affected only by some changes of an object. keysOf compares the former
// object, nil if it is new, with the present one, nil if it is deleted. It is not called for a resync without change.
// It must neither block nor modify the objects.
func Changes[T any, P interface {
	*T
	metav1.Object
}, K comparable](q *Queue[K], keysOf func(was, is P) []K,
) cache.ResourceEventHandler {
	var none K
	add := func(was, is P) {
		for _, key := range keysOf(was, is) {
			if key != none {
				q.Add(key)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { add(nil, unwrap[P](obj)) },
		UpdateFunc: func(before, after any) {
			was, is := unwrap[P](before), unwrap[P](after)
			// Without versions (a fake), a change cannot be distinguished from a resync.
			if v := is.GetResourceVersion(); v == "" || v != was.GetResourceVersion() {
				add(was, is)
			}
		},
		DeleteFunc: func(obj any) { add(unwrap[P](obj), nil) },
	}
}
