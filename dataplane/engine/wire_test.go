package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// one is an Exporter of one session.
type one struct{ *session }

func (o one) Open(context.Context, string, nbd.ConnInfo) (*nbd.Export, error) {
	return &nbd.Export{Name: "r", Size: o.Size(), Backend: o.session, Closed: func() { _ = o.session.Close() }}, nil
}

func (o one) List(context.Context) []string { return nil }

// overTheWire puts a connection between the engine and each session, except the local one.
func (r *rig) overTheWire(d *disk, s *session) Replica {
	if d.name == r.local {
		return s
	}
	path := filepath.Join(r.t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		r.t.Error(err)
		return s
	}
	server := nbd.NewServer(one{s}, nbd.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(r.t, errors.Join(server.Shutdown(ctx), <-served))
	})
	c, err := nbd.Dial(r.t.Context(), "unix", path, "r", nbd.DialOptions{})
	if err != nil {
		r.t.Error(err)
		return s
	}
	return c
}

func newWireRig(t *testing.T) *rig {
	r := newRig(t, "a", "b", "c")
	r.local = "a"
	r.wrap = r.overTheWire
	return r
}

func TestOverlappingWritersOverTheWire(t *testing.T) {
	r := newWireRig(t)
	e, _ := r.run(1)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(3, uint64(w)))
			for n := range 200 {
				off, length := rnd.Int64N(32<<10), 1+rnd.Int64N(16<<10)
				var err error
				if n%20 == 0 {
					err = e.Backend().Trim(context.Background(), off, length, false)
				} else {
					err = e.Backend().WriteAt(context.Background(), pattern(byte(n+w), length), off, n%9 == 0)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.sameBytes()
	assert.NoError(t, e.Stop(t.Context()))
	r.expectMarks(nil)
}

func TestALostConnectionExpelsTheMember(t *testing.T) {
	r := newWireRig(t)
	e, changed := r.run(1)
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 4096), 0, true))
	_ = r.disk("c").current.Close() // the server's end; the client learns it from the next request
	assert.NoError(t, e.Backend().WriteAt(t.Context(), pattern(2, 4096), 0, false))
	s := r.await(e, changed, "expulsion", inEpoch("a", "b"))
	assert.Equal(t, PhaseRunning, s.Phase)
	assert.Equal(t, ModeERR, s.Members[2].Mode)
	r.sameBytes("a", "b")
}

func TestResyncOverTheWire(t *testing.T) {
	r := newWireRig(t)
	for _, d := range r.disks {
		d.fill(t, d.name[0], 0, 2*testRegion)
		d.mark(0)
	}
	e, _ := r.run(1)
	for _, d := range r.disks {
		assert.Equal(t, pattern('a', testRegion), d.bytes(t, 0, testRegion), "%s holds other bytes", d.name)
		assert.Equal(t, pattern(d.name[0], testRegion), d.bytes(t, testRegion, testRegion), "%s holds other bytes", d.name)
	}
	assert.NoError(t, e.Stop(t.Context()))
}
