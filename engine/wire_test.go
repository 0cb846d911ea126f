package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// one is an Exporter of one session.
type one struct{ *session }

func (o one) Open(context.Context, string, nbd.ConnInfo) (*nbd.Export, error) {
	return &nbd.Export{Name: "r", Size: o.Size(), Backend: o.session, Closed: func() { _ = o.session.Close() }}, nil
}

func (o one) List(context.Context) []string { return nil }

// overTheWire puts a connection between the engine and each session but the local one.
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
		if err := errors.Join(server.Shutdown(ctx), <-served); err != nil {
			r.t.Error(err)
		}
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
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	r.expectMarks(nil)
}

func TestALostConnectionExpelsTheMember(t *testing.T) {
	r := newWireRig(t)
	e, changed := r.run(1)
	if err := e.Backend().WriteAt(t.Context(), pattern(1, 4096), 0, true); err != nil {
		t.Fatal(err)
	}
	_ = r.disk("c").current.Close() // the server's end; the client learns it from the next request
	if err := e.Backend().WriteAt(t.Context(), pattern(2, 4096), 0, false); err != nil {
		t.Errorf("write: %v", err)
	}
	s := r.await(e, changed, "expulsion", inEpoch("a", "b"))
	if s.Phase != PhaseRunning || s.Members[2].Mode != ModeERR {
		t.Errorf("got %+v", s)
	}
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
		if !slices.Equal(d.bytes(t, 0, testRegion), pattern('a', testRegion)) || !slices.Equal(d.bytes(t, testRegion, testRegion), pattern(d.name[0], testRegion)) {
			t.Errorf("%s holds other bytes", d.name)
		}
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
