package device

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// A device has one server: the server of the latest generation. The keeper enforces this, whatever the processes that
// ask have checked before.
func TestWhoMayAdoptADevice(t *testing.T) {
	other := owner(1)
	other.Session = "other"
	for name, tc := range map[string]struct {
		volume string
		served bool
		phase  phase
		asks   Owner
		want   error
	}{
		"a successor of a higher generation":        {"vol-0", false, keeping, owner(2), nil},
		"the same start again":                      {"vol-0", false, keeping, owner(1), nil},
		"while another one serves":                  {"vol-0", true, keeping, owner(2), ErrServed},
		"the one that serves":                       {"vol-0", true, keeping, owner(1), ErrServed},
		"while the device is removed":               {"vol-0", false, clearing, owner(2), ErrServed},
		"while the device is made":                  {"vol-0", false, creating, owner(2), ErrNotHeld},
		"a lower generation":                        {"vol-0", false, keeping, owner(0), ErrFenced},
		"another session of the same generation":    {"vol-0", false, keeping, other, ErrFenced},
		"a lower generation, while another serves":  {"vol-0", true, keeping, owner(0), ErrFenced},
		"the device of a volume that does not have": {"vol-9", false, keeping, owner(2), ErrNotHeld},
	} {
		for kind, adopt := range map[Kind]func(l *Local) error{
			KindNBD: func(l *Local) error {
				_, err := l.AdoptSocket(t.Context(), tc.volume, tc.asks, socketTo(t))
				return err
			},
			KindFUSE: func(l *Local) error {
				fd, _, err := l.Adopt(t.Context(), tc.volume, tc.asks)
				if err == nil {
					err = unix.Close(fd)
				}
				return err
			},
		} {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				l := keepNBD(t, newFakeKernel(), 1)
				k := l.devices["vol-0"]
				k.held.Served, k.phase, k.held.Kind = tc.served, tc.phase, kind
				if kind == KindFUSE {
					k.nbd, k.conn = nil, socketTo(t)
				}
				before := k.held
				err := adopt(l)
				if tc.want != nil {
					require.ErrorIs(t, err, tc.want)
					assert.Equal(t, before, k.held, "a refusal changed who has the device")
					return
				}
				require.NoError(t, err)
				assert.Equal(t, tc.asks, k.held.Owner)
				assert.True(t, k.held.Served)
			})
		}
	}
}

// When a process exits, the requests that the keeper has not started are not performed.
func TestCallsOfAServerThatEndedAreRefused(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, k Keeper) error{
		"attach": func(ctx context.Context, k Keeper) error {
			_, err := k.Attach(ctx, Spec{Volume: "vol-9", SizeBytes: 1 << 20}, -1, -1)
			return err
		},
		"adopt a FUSE device": func(ctx context.Context, k Keeper) error {
			_, _, err := k.Adopt(ctx, "vol-0", owner(2))
			return err
		},
		"adopt an NBD device": func(ctx context.Context, k Keeper) error {
			_, err := k.AdoptSocket(ctx, "vol-0", owner(2), 0)
			return err
		},
		"leave":  func(ctx context.Context, k Keeper) error { return k.Leave(ctx, "vol-0", owner(1)) },
		"detach": func(ctx context.Context, k Keeper) error { return k.Detach(ctx, "vol-0", owner(1)) },
		"resize": func(ctx context.Context, k Keeper) error { return k.Resize(ctx, "vol-0", owner(1), 2<<20) },
		"abort":  func(ctx context.Context, k Keeper) error { return k.Abort(ctx, "vol-0") },
	} {
		t.Run(name, func(t *testing.T) {
			l := keepNBD(t, newFakeKernel(), 1)
			asks := l.Session()
			l.ServerEnded()
			assert.ErrorIs(t, ask(t.Context(), asks), ErrEnded)
			all, err := l.List(t.Context())
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, owner(1), all[0].Owner)
			assert.False(t, all[0].Served)
		})
	}
}

// The last data of plain writers reaches the server before the removal of an NBD device passes the point of no return.
// The block device here is a FUSE device: the kernel writes back its cache in the same way.
func TestARemovalOfAnNBDDeviceWritesBackBeforeItProceeds(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	keeper := newKeeper(t, t.TempDir())
	f := frontend(keeper, 1)
	path, err := f.Start(t.Context(), "vol-1", size, m)
	require.NoError(t, err)
	user, err := os.OpenFile(path, os.O_RDWR, 0) // the last user that closes it would write it back
	require.NoError(t, err)
	defer user.Close()
	want := pattern(5, 8192)
	_, err = user.Write(want)
	require.NoError(t, err)
	d := &nbdDevice{blockNode: blockNode{path: path, held: -1}, link: newFakeKernel(), socket: -1, parked: -1}
	got := make([]byte, len(want))
	proceeded := false
	_, err = d.detach(func() error {
		proceeded = true
		require.NoError(t, m.ReadAt(context.WithoutCancel(t.Context()), got, 0))
		return ErrEnded
	}, func() { t.Error("it is gone") })
	assert.ErrorIs(t, err, ErrEnded)
	assert.True(t, proceeded)
	assert.True(t, bytes.Equal(got, want), "the last data was not written back")
}
