package election

import (
	"context"
	"errors"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// cutKube is the connection of one process to an API server that others use as well; it can be cut.
type cutKube struct {
	*fake.Clientset
	away atomic.Bool
}

func (k *cutKube) CoordinationV1() typed.CoordinationV1Interface {
	return cutCoordination{k.Clientset.CoordinationV1(), &k.away}
}

type cutCoordination struct {
	typed.CoordinationV1Interface
	away *atomic.Bool
}

func (c cutCoordination) Leases(namespace string) typed.LeaseInterface {
	return cutLeases{c.CoordinationV1Interface.Leases(namespace), c.away}
}

// cutLeases answers nothing while it is cut: a request waits until its caller cancels it.
type cutLeases struct {
	typed.LeaseInterface
	away *atomic.Bool
}

var errCut = errors.New("the API server is away")

func (l cutLeases) wait(ctx context.Context) error {
	if !l.away.Load() {
		return nil
	}
	<-ctx.Done()
	return errCut
}

func (l cutLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Get(ctx, name, o)
}

func (l cutLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Update(ctx, lease, o)
}
