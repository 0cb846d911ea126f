package sidecar

import (
	"context"
	"fmt"
	"sync"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// turns allows one action at a time on each publication: either the attacher publishes, or unattached checks for a
// VolumeAttachment and unpublishes. The attacher publishes after it has seen the VolumeAttachment. So a publication
// that ended before the check has a VolumeAttachment that the check finds. A publication that starts after the check
// waits until the volume is unpublished, and then publishes it.
type turns struct {
	mu    sync.Mutex // guards taken
	taken map[publication]chan struct{}
}

func newTurns() *turns { return &turns{taken: map[publication]chan struct{}{}} }

// take waits for the turn at a publication. The caller must call release.
func (t *turns) take(ctx context.Context, p publication) (release func(), err error) {
	for {
		t.mu.Lock()
		over, isTaken := t.taken[p]
		if !isTaken {
			over = make(chan struct{})
			t.taken[p] = over
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.taken, p)
				close(over)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for volume %s on node %s: %w", p.volume, p.node, context.Cause(ctx))
		}
	}
}

// intercept makes the attacher take its turn before it publishes.
func (t *turns) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if publish, ok := req.(*csipb.ControllerPublishVolumeRequest); ok {
		release, err := t.take(ctx, publication{publish.GetVolumeId(), publish.GetNodeId()})
		if err != nil {
			return err
		}
		defer release()
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}
