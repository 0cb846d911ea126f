package datastore

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is a pointer to an API type, such as *longhorn.Volume.
type Object interface {
	metav1.Object
	runtime.Object
}

// typedClient is what every generated client has; L is the kind's list type.
type typedClient[T Object, L runtime.Object] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// statusClient is the part that kinds with a status subresource have besides.
type statusClient[T Object] interface {
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// verbs is a typedClient without its list type, so that a Store needs one type only.
type verbs[T Object] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	ListAny(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// adapter makes verbs of a typedClient.
type adapter[T Object, L runtime.Object] struct {
	typedClient[T, L]
	resource schema.GroupResource
}

func (a adapter[T, L]) ListAny(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return a.List(ctx, opts)
}

func (a adapter[T, L]) UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error) {
	if c, ok := a.typedClient.(statusClient[T]); ok {
		return c.UpdateStatus(ctx, obj, opts)
	}
	var none T
	return none, apierrors.NewMethodNotSupported(a.resource, "update status")
}

// items takes a list apart.
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
