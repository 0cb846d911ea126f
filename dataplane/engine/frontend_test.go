package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// flushingFrontend simulates a device that the kernel flushes before it is ready.
type flushingFrontend struct {
	frontendStub
	before func()
}

func (f *flushingFrontend) Start(ctx context.Context, volume string, size int64, b nbd.Backend) (string, error) {
	f.before()
	if err := b.Flush(ctx); err != nil {
		return "", err
	}
	return f.frontendStub.Start(ctx, volume, size, b)
}

// The flush is answered when the member is expelled, and only then has the frontend started.
func TestAMemberThatFailsWhileTheFrontendStartsIsExpelled(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	f := &flushingFrontend{before: func() { r.disk("b").io.Inject(failing(nbd.EIO, faulty.Flush)) }}
	e, _ := r.run(1, func(c *Config) { c.Frontend = f })
	s := e.State()
	assert.True(t, inEpoch("a", "c")(s))
	assert.Equal(t, "/dev/test/v", s.Endpoint)
}
