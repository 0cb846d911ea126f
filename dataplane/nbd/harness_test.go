package nbd_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits every wait of these tests; a passing test does not wait for it.
const patience = 20 * time.Second

// exports is an Exporter over a fixed set. It counts the open exports and records the peers that opened them.
type exports struct {
	set map[string]*nbd.Export
	err map[string]error

	mu     sync.Mutex
	open   map[string]int // guarded by mu
	opened []nbd.ConnInfo // guarded by mu
}

func serving(list ...*nbd.Export) *exports {
	x := &exports{set: map[string]*nbd.Export{}, err: map[string]error{}, open: map[string]int{}}
	for _, e := range list {
		x.set[e.Name] = e
	}
	return x
}

func (x *exports) Open(_ context.Context, name string, c nbd.ConnInfo) (*nbd.Export, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.err[name]; err != nil {
		return nil, err
	}
	e := x.set[name]
	if e == nil {
		return nil, nbd.ErrUnknownExport
	}
	x.open[name]++
	x.opened = append(x.opened, c)
	mine := *e
	mine.Closed = func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.open[name]--
	}
	return &mine, nil
}

func (x *exports) List(context.Context) []string {
	var names []string
	for name := range x.set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// stillOpen returns how often name was opened and not closed.
func (x *exports) stillOpen(name string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.open[name]
}

// opens returns the peers that opened any export, in order.
func (x *exports) opens() []nbd.ConnInfo {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.opened)
}

// listen serves x on a unix socket until the test ends, and returns its path.
func listen(t testing.TB, x nbd.Exporter, opts nbd.ServerOptions) (*nbd.Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := nbd.NewServer(x, opts)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, s.Shutdown(ctx), "shut down")
		assert.NoError(t, <-served)
	})
	return s, path
}

// dial opens an export and closes it when the test ends.
func dial(t testing.TB, path, name string, opts nbd.DialOptions) *nbd.Client {
	t.Helper()
	c, err := nbd.Dial(context.Background(), "unix", path, name, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// within returns a context that is done when the test has waited too long.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// receive waits for a value.
func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-within(t).Done():
		t.Fatalf("waited too long for %s", what)
		panic("unreachable")
	}
}
