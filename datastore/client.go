package datastore

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is a pointer to an API type, such as *longhorn.Volume.
type Object interface {
	metav1.Object
	runtime.Object
}

// typedClient is the interface of every generated client; L is the kind's list type.
type typedClient[T Object, L runtime.Object] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// verbs is a typedClient without its list type, so that a Store needs only one type parameter.
type verbs[T Object] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, p patch, part half) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	ListAny(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// adapter implements verbs with a typedClient.
type adapter[T Object, L runtime.Object] struct {
	typedClient[T, L]
}

func (a adapter[T, L]) ListAny(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return a.List(ctx, opts)
}

func (a adapter[T, L]) Patch(ctx context.Context, name string, p patch, part half) (T, error) {
	if part == notStatus {
		return a.typedClient.Patch(ctx, name, p.kind, p.body, metav1.PatchOptions{})
	}
	return a.typedClient.Patch(ctx, name, p.kind, p.body, metav1.PatchOptions{}, "status")
}

// items returns the objects of a list.
func items[T Object](list runtime.Object) ([]T, error) {
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("extract items of %T: %w", list, err)
	}
	typed := make([]T, 0, len(objects))
	for _, object := range objects {
		t, ok := object.(T)
		if !ok {
			return nil, fmt.Errorf("extract items of %T: unexpected %T", list, object)
		}
		typed = append(typed, t)
	}
	return typed, nil
}
