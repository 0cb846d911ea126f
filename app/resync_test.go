package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestResyncSyncsEachMinuteUntilItsEnd(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	synced := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- resync{fake, []func(){func() { synced <- struct{}{} }}}.Run(ctx) }()
	for range 2 {
		assert.Eventually(t, fake.HasWaiters, 10*time.Second, time.Millisecond)
		fake.Step(resyncInterval)
		<-synced
	}
	cancel()
	assert.NoError(t, <-ended)
}
