package app

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/longhorn-lep/longhorn-manager/controller/handover"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A leader that hands over waits until another daemon leads, and then stands for election again.
func TestALeaderThatHandsOverCampaignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testutil.NewLeases()
		first, second := newLeadership("node-1", "10.0.0.1"), newLeadership("node-2", "10.0.0.2")
		first.successorTimeout, second.successorTimeout = time.Hour, time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		led := make(chan string, 9)
		handsOver := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				led <- name
				if name == "second" {
					assert.Eventually(t, func() bool { return first.leader.Load() == second.identity || ctx.Err() != nil }, time.Minute, time.Second,
						"the first knows its successor")
				}
				return fmt.Errorf("cluster: %w", handover.ErrHandOver)
			}
		}
		ends := make(chan error, 2)
		go func() { ends <- first.run(ctx, kube, "storage", quiet(), handsOver("first")) }()
		assert.Equal(t, "first", <-led)
		go func() { ends <- second.run(ctx, kube, "storage", quiet(), handsOver("second")) }()
		assert.Equal(t, "second", <-led, "the first waits for a successor")
		assert.Equal(t, "first", <-led, "the second waits for a successor")
		cancel()
		require.NoError(t, <-ends)
		require.NoError(t, <-ends)
		assert.False(t, first.isLeader())
		lease, err := kube.CoordinationV1().Leases("storage").Get(t.Context(), types.LeaderLease, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Empty(t, *lease.Spec.HolderIdentity, "the lease is given back")
	})
}

// A leader whose work fails stands for election again: the cause may disappear.
func TestALeaderThatFailsCampaignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeadership("node-1", "10.0.0.1")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		terms := 0
		require.NoError(t, l.run(ctx, fake.NewClientset(), "storage", quiet(), func(ctx context.Context) error {
			synctest.Wait()
			assert.True(t, l.isLeader())
			if terms++; terms < 3 {
				return errors.New("fill the caches: the API server is away")
			}
			cancel()
			<-ctx.Done()
			return nil
		}))
		assert.Equal(t, 3, terms)
		assert.False(t, l.isLeader())
	})
}
