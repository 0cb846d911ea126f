package queue

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Changes is Handler for keys that not every change of an object concerns: keysOf compares
// what the object was, nil if it is new, with what it is, nil if it is gone. It is not called
// for a resync without change, and must neither block nor modify the objects.
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
			// Without versions (a fake) no change can be told from a resync.
			if v := is.GetResourceVersion(); v == "" || v != was.GetResourceVersion() {
				add(was, is)
			}
		},
		DeleteFunc: func(obj any) { add(unwrap[P](obj), nil) },
	}
}
