package sidecar

import (
	"context"
	"fmt"
	"sync"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// publicationLocks allows one action at a time on each publication: either the attacher publishes, or unattached checks
// for a VolumeAttachment and unpublishes. The attacher publishes after it has seen the VolumeAttachment. So a
// publication that ended before the check has a VolumeAttachment that the check finds. A publication that starts after
// the check waits until the volume is unpublished, and then publishes it.
type publicationLocks struct {
	mu   sync.Mutex // guards held
	held map[publication]chan struct{}
}

func newPublicationLocks() *publicationLocks {
	return &publicationLocks{held: map[publication]chan struct{}{}}
}

// acquire waits for the lock of a publication. The caller must call release.
func (t *publicationLocks) acquire(ctx context.Context, p publication) (release func(), err error) {
	for {
		t.mu.Lock()
		released, isHeld := t.held[p]
		if !isHeld {
			released = make(chan struct{})
			t.held[p] = released
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.held, p)
				close(released)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-released:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for volume %s on node %s: %w", p.volume, p.node, context.Cause(ctx))
		}
	}
}

// intercept makes the attacher acquire the lock of the publication before it publishes.
func (t *publicationLocks) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if publish, ok := req.(*csipb.ControllerPublishVolumeRequest); ok {
		release, err := t.acquire(ctx, publication{publish.GetVolumeId(), publish.GetNodeId()})
		if err != nil {
			return err
		}
		defer release()
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}
