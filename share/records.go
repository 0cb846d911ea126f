package share

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

// records maintains, in order, the data that the servers of this process leave on the volume for their successors.
type records struct {
	v        *volume
	readOnly bool
	clients  *ganesha.Recording
	reserve  ganesha.Reserve
	epochs   *epochs
}

func newRecords(o Options, v *volume, health *healthService) *records {
	return &records{
		v: v, readOnly: o.ReadOnly,
		clients: ganesha.NewRecording(v.incident, health.recovery.found, o.Log),
		reserve: ganesha.Reserve{Recovery: v.recovery, Log: o.Log},
		epochs:  newEpochs(v),
	}
}

// serverStarts prepares the next server. The server gets an epoch, and a place for its records. If the volume accepts
// no records, the place is in the pod, because a server without any place does not start. Records that cannot be read
// are an error.
func (r *records) serverStarts(c *ganesha.Config) error {
	clients, err := r.count(abandonTimeout)
	if err != nil {
		return err
	}
	r.clients.ServerStarts(clients)
	if !r.readOnly {
		r.v.within(abandonTimeout, r.reserve.Release)
	}
	c.Epoch = r.epochs.next()
	if err := r.v.recordable(abandonTimeout); err != nil {
		r.clients.CannotRecord(err.Error())
		c.Recovery = filepath.Join(r.v.o.RuntimeDirectory, "unrecorded")
		if err := os.MkdirAll(c.Recovery, 0o700); err != nil {
			return fmt.Errorf("creating a directory for records: %w", err)
		}
	}
	return nil
}

// count is how many records the server must find. It is ganesha.NotKnown if the volume does not answer within limit, or
// has no records.
func (r *records) count(limit time.Duration) (clients int, err error) {
	if r.readOnly {
		return ganesha.NotKnown, nil
	}
	type result struct {
		clients int
		err     error
	}
	counted := make(chan result, 1)
	r.v.within(limit, func() {
		clients, err := ganesha.Count(r.v.recovery)
		counted <- result{clients, err}
	})
	select {
	case c := <-counted:
		return c.clients, c.err
	default:
		return ganesha.NotKnown, nil
	}
}

// run works in the background until ctx is done or stop is called. stop waits for work that is under way, unless the
// volume does not answer.
func (r *records) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !r.readOnly {
			r.reserve.Run(ctx)
		}
	}()
	return func() {
		cancel()
		r.v.within(abandonTimeout, func() { <-done })
	}
}
