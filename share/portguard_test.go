package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

// verdictIn answers with the text of a file, if the question is about the device that is named in the text, too; nil:
// there is no file.
func verdictIn(file string) func(context.Context, uint64, bool) (Answer, error) {
	if file == "" {
		return nil
	}
	return func(_ context.Context, device uint64, _ bool) (Answer, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return Answer{}, err
		}
		switch string(text) {
		case fmt.Sprint("yes ", device):
			return Answer{Verdict: firewall.Yes, Generation: 8, Before: Predecessor{Generation: 7, Age: time.Second}}, nil
		case fmt.Sprint("unknown ", device):
			return Answer{Verdict: firewall.Yes, Generation: 8}, nil
		case "no":
			return Answer{Verdict: firewall.No}, nil
		}
		return Answer{}, errors.New("another device")
	}
}

const (
	sayOpen   = "The NFS port is open to clients"
	sayClosed = "The NFS port is closed to clients"
)

// A share manager asks about the device that it has mounted, and opens the port when the answer is yes. It exits when
// all answers have been no for long. It does not flush: the volume may belong to another share manager by then.
func TestAShareThatIsNotInForceEnds(t *testing.T) {
	if !own(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "verdict")
	t.Setenv(verdictEnv, file)
	device := loopDevice(t, newImage(t, 64<<20))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(device, &st))
	answer := func(text string) {
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	answer(fmt.Sprint("yes ", st.Rdev))
	r := startRole(t, t.TempDir(), device, nil)
	r.await(sayOpen, 1)
	r.await(sayServed, 1)
	answer("no")
	r.await(sayClosed, 1)
	r.write("file", "data") // from its own network, in which the share manager asks its server
	answer(fmt.Sprint("yes ", st.Rdev))
	r.await(sayOpen, 2)
	answer("no")
	assert.Equal(t, 1, r.end())
	assert.Contains(t, r.out.String(), firewall.ErrNotConfirmed.Error())
	assert.Equal(t, 2, strings.Count(r.out.String(), sayClosed))
}

// If the share manager exits in order, the port is free again after the server has exited.
func TestAShareRemovesItsPortRules(t *testing.T) {
	if !own(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "verdict")
	t.Setenv(verdictEnv, file)
	device := loopDevice(t, newImage(t, 64<<20))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(device, &st))
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprint("yes ", st.Rdev)), 0o600))
	r := startRole(t, t.TempDir(), device, nil)
	r.await(sayServed, 1)
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", r.cmd.Process.Pid))
	require.NoError(t, err)
	defer network.Close()
	in := fmt.Sprintf("/proc/self/fd/%d", network.Fd())
	assert.True(t, hasGate(t, in))
	r.terminate()
	assert.False(t, hasGate(t, in))
}

// The kernel cannot limit the port. Then no server starts before all members know that the port has no limit. Some may
// remember a limited question of an earlier share manager that used the same engine.
func TestWithoutPortRulesTheMembersLearnThatThePortHasNoLimit(t *testing.T) {
	answers := []firewall.Verdict{firewall.Unconfirmed, firewall.Unanswered, firewall.Yes}
	o := valid()
	o.InForce = func(_ context.Context, device uint64, limited bool) (Answer, error) {
		assert.EqualValues(t, 7, device)
		assert.False(t, limited)
		v := answers[0]
		answers = answers[1:]
		return Answer{Verdict: v}, nil
	}
	cannot := func(firewall.Question) (portGuard, error) { return nil, errTest }
	g, err := guardDevice(t.Context(), o, 7, cannot)
	require.NoError(t, err)
	assert.Empty(t, answers)
	assert.False(t, g.isClosed())
	require.NoError(t, g.end(true))

	ctx, cancel := context.WithCancel(t.Context())
	o.InForce = func(context.Context, uint64, bool) (Answer, error) {
		cancel()
		return Answer{Verdict: firewall.Unconfirmed}, nil
	}
	_, err = guardDevice(ctx, o, 7, cannot)
	require.ErrorIs(t, err, context.Canceled, "no server may start")
}

// fakePortGuard stops with its context.
type fakePortGuard struct {
	removed bool
	ended   chan struct{}
}

func (f *fakePortGuard) Run(ctx context.Context) error {
	defer close(f.ended)
	<-ctx.Done()
	return nil
}
func (f *fakePortGuard) IsClosed() bool { return false }
func (f *fakePortGuard) Remove() error {
	f.removed = true
	return nil
}

// After a request to exit, a server takes some seconds. Until it has exited, its port is open only while the engine is
// confirmed.
func TestThePortIsGuardedUntilTheServerHasExited(t *testing.T) {
	for name, ended := range map[string]bool{"the server has ended": true, "it has not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakePortGuard{ended: make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				g, err := guardDevice(ctx, valid(), 7, func(firewall.Question) (portGuard, error) { return f, nil })
				require.NoError(t, err)
				cancel() // SIGTERM
				synctest.Wait()
				select {
				case <-f.ended:
					t.Fatal("the gate is not guarded any more")
				default:
				}
				assert.Equal(t, ended, g.end(ended) == nil)
				<-f.ended
				assert.Equal(t, ended, f.removed)
			})
		})
	}
}

// A server that serves no client may have a successor. If its share manager must exit then, it neither sends a request
// to its server nor flushes.
func TestAShareWithAClosedPortEndsWithoutAFlush(t *testing.T) {
	if !own(t) {
		return
	}
	const sayUnflushed = "unmounted without a flush"
	for name, closed := range map[string]bool{"closed": true, "in force": false} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "verdict")
			t.Setenv(verdictEnv, file)
			device := loopDevice(t, newImage(t, 64<<20))
			var st unix.Stat_t
			require.NoError(t, unix.Stat(device, &st))
			require.NoError(t, os.WriteFile(file, []byte(fmt.Sprint("yes ", st.Rdev)), 0o600))
			r := startRole(t, t.TempDir(), device, nil)
			r.await(sayOpen, 1)
			r.await(sayServed, 1)
			if closed {
				require.NoError(t, os.WriteFile(file, []byte("no"), 0o600))
				r.await(sayClosed, 1)
			}
			r.terminate()
			assert.Equal(t, closed, strings.Contains(r.out.String(), sayUnflushed))
		})
	}
}

func hasGate(t *testing.T, network string) (found bool) {
	t.Helper()
	require.NoError(t, netns.In(network, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTables()
		for _, table := range tables {
			found = found || table.Name == "longhorn-share-gate"
		}
		return err
	}))
	return found
}
