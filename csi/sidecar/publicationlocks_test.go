package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// publish makes the attacher publish volume vol to node id-1; call stands for the driver's call.
func (w *attachedWorld) publish(call func()) error {
	req := &csipb.ControllerPublishVolumeRequest{VolumeId: "vol", NodeId: "id-1"}
	return w.locks.intercept(context.Background(), "", req, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		call()
		return nil
	})
}

// isDue has the volume without a VolumeAttachment for long enough that the next comparison unpublishes it.
func isDue(t *testing.T) *attachedWorld {
	t.Helper()
	w := newAttachedWorld(t)
	require.NoError(t, w.pass(t, 70*time.Second))
	require.Empty(t, w.driver.undone)
	w.clock.Step(30 * time.Second)
	_, err := w.ListVolumes(t.Context())
	require.NoError(t, err)
	return w
}

func TestAVolumeThatIsBeingPublishedIsNotUnpublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := isDue(t)
		published, compared := make(chan struct{}), make(chan error, 1)
		go func() { _ = w.publish(func() { <-published }) }()
		synctest.Wait()
		go func() { compared <- w.sync(t.Context()) }()
		synctest.Wait() // the comparison waits for its turn
		_, err := w.kube.StorageV1().VolumeAttachments().Create(t.Context(), attachment(), metav1.CreateOptions{})
		require.NoError(t, err)
		close(published)
		require.NoError(t, <-compared)
		assert.Empty(t, w.driver.undone)
	})
}

func TestAVolumeIsPublishedAfterItWasUnpublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := isDue(t)
		answer := make(chan struct{})
		w.kube.PrependReactor("list", "volumeattachments", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-answer // its answer was true before the VolumeAttachment was created
			return false, nil, nil
		})
		compared, published := make(chan error, 1), make(chan []string, 1)
		go func() { compared <- w.sync(t.Context()) }()
		synctest.Wait()
		go func() { _ = w.publish(func() { published <- w.driver.undone }) }()
		synctest.Wait()
		close(answer)
		require.NoError(t, <-compared)
		assert.Equal(t, []string{"vol id-1"}, <-published, "it was published before it was unpublished, and stays unpublished")
	})
}

func TestAnotherPublicationWaitsForNothing(t *testing.T) {
	turns := newPublicationLocks()
	release, err := turns.acquire(t.Context(), publication{"vol", "n1"})
	require.NoError(t, err)
	other, err := turns.acquire(t.Context(), publication{"vol", "n2"})
	require.NoError(t, err)
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = turns.acquire(ctx, publication{"vol", "n1"})
	require.ErrorIs(t, err, context.Canceled)
	release()
	release, err = turns.acquire(t.Context(), publication{"vol", "n1"})
	require.NoError(t, err)
	release()
	assert.Empty(t, turns.held)
}
