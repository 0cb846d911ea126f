package share

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newLibrary builds the library as the image has it.
func newLibrary(t *testing.T) string {
	t.Helper()
	needs(t, "gcc")
	library := filepath.Join(t.TempDir(), "ganesha-wake.so")
	run(t, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, "wake/wake.c")
	return library
}

func TestAServerLooksUntilItsGracePeriodIsOver(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(w *waking, server *os.File, ended chan struct{})
		after  time.Duration
		warned bool
	}{
		{"it says that it is over", func(w *waking, _ *os.File, _ chan struct{}) {
			w.hear([]byte("26/11/2026 [main] nfs_lift_grace_locked :STATE :EVENT :NFS Server Now NOT IN GRACE"))
		}, 0, false},
		{"a client was recorded twice", func(w *waking, _ *os.File, _ chan struct{}) {
			w.hear([]byte(sayRecorded + "[one]\n"))
			w.hear([]byte(sayRecorded + "[two]\n"))
			w.hear([]byte(sayRecorded + "[one]\n"))
		}, 0, false},
		{"it has ended", func(_ *waking, _ *os.File, ended chan struct{}) { close(ended) }, 0, false},
		{"it does not know how", func(_ *waking, server *os.File, _ chan struct{}) { _ = server.Close() }, lookEvery / 2, true},
		{"the time is over", func(*waking, *os.File, chan struct{}) {}, 9*time.Second - lookEvery/2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cmd := exec.Command("server")
				logger, hook := logtest.NewNullLogger()
				w, err := newWaking(cmd, "wake.go", logrus.NewEntry(logger)) // any file that is there
				require.NoError(t, err)
				assert.Equal(t, []string{"LD_PRELOAD=wake.go", "LONGHORN_WAKE_FD=3"}, cmd.Env)
				number, err := syscall.Dup(int(cmd.ExtraFiles[0].Fd())) // as the server has it
				require.NoError(t, err)
				server := os.NewFile(uintptr(number), "server")
				ended, over := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(over)
					w.run(10*time.Second, ended)
				}()
				time.Sleep(time.Second + lookEvery/2)
				looks := make([]byte, 100)
				n, err := server.Read(looks)
				require.NoError(t, err)
				assert.Equal(t, 10, n, "looks in a second")
				for _, name := range []string{"one", "two", "x NOT IN GRACE y"} { // clients choose their names
					w.hear([]byte("26/11/2026 [main] fs_ng_read_recov_clids_impl :CLIENT ID :EVENT :added [" + name + "] to clid list"))
				}
				w.hear([]byte(sayRecorded + "[x NOT IN GRACE y]\n"))
				synctest.Wait()
				began := time.Now()
				c.end(w, server, ended)
				<-over
				assert.Equal(t, c.after, time.Since(began))
				assert.Equal(t, c.warned, len(hook.Entries) > 0)
				_, _ = io.ReadAll(server)
				_ = server.Close()
			})
		})
	}
	w, err := newWaking(exec.Command("server"), filepath.Join(t.TempDir(), "none"), quiet())
	require.NoError(t, err)
	assert.Nil(t, w, "without the library")
	w.hear([]byte(graceOver))
}

// sayRecorded begins the line by which Ganesha says that it has recorded a client.
const sayRecorded = "26/11/2026 14:23:09 : epoch 6b059db8 : vm : nfs-ganesha-22[svc_1] fs_create_clid_name :CLIENT ID :DEBUG :Created client name "

// beReturning is a client of NFSv4.1 that makes itself known and says that it has claimed all that it had. Its record stays.
func beReturning(name string) error {
	const opExchangeID, opCreateSession, opSequence, opReclaimComplete = 42, 43, 53, 58
	p := newProber(2049, patience)
	call := func(xid, operations uint32, ops words) (*reader, error) {
		credential := words{}.put(0).opaque("test").put(0, 0, 0)
		record, err := p.call(context.Background(), words{}.put(xid, rpcCall, rpcVersion, nfsProgram, nfsVersion, procCompound, authSys).
			opaque(string(credential)).put(authNone, 0).opaque("").put(1, operations).add(ops).framed())
		if err != nil {
			return nil, err
		}
		r := &reader{rest: record}
		if err := accepted(r, xid); err != nil {
			return nil, err
		}
		if status := r.word(); status != 0 {
			return nil, statusError(status)
		}
		r.opaque(maxReply)
		r.word() // results
		r.word() // the operation
		r.word() // its status
		return r, nil
	}
	r, err := call(1, 1, words{}.put(opExchangeID).add([]byte("verifier")).opaque(name).put(0, 0, 0))
	if err != nil {
		return fmt.Errorf("making itself known: %w", err)
	}
	id := words{}.put(r.word(), r.word())
	sequence := r.word()
	channel := words{}.put(0, 1<<20, 1<<20, 4096, 16, 16, 0)
	r, err = call(2, 1, words{}.put(opCreateSession).add(id).put(sequence, 0).add(channel).add(channel).put(0x40000000, 1, authNone))
	if err != nil {
		return fmt.Errorf("beginning a session: %w", err)
	}
	if len(r.rest) < 16 {
		return errors.New("there is no session")
	}
	_, err = call(3, 2, words{}.put(opSequence).add(r.rest[:16]).put(1, 0, 0, 0).put(opReclaimComplete, 0))
	return err
}

// returns has a client claim its state.
func (r *role) returns(name string) {
	r.t.Helper()
	self, err := os.Executable()
	require.NoError(r.t, err)
	out, err := r.inside(returningEnv+"="+name, self, "-test.run=^$")
	require.NoError(r.t, err, out)
}

// TestTheGracePeriodEndsWhenAllClientsAreBack: Ganesha looks 10 s after its start by itself, and here as soon as the last client has claimed its
// state. While one is not back, the grace period goes on.
func TestTheGracePeriodEndsWhenAllClientsAreBack(t *testing.T) {
	if !own(t) {
		return
	}
	library := newLibrary(t)
	r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), func(o *Options) {
		o.Lease, o.Grace, o.WakeLibrary = 60*time.Second, 60*time.Second, library
	})
	r.await(sayServed, 1)
	r.await(graceOver, 1)
	r.returns("one")
	r.returns("two")
	require.NoError(t, syscall.Kill(r.ganesha(), syscall.SIGKILL))
	r.await(sayServed, 2)
	r.returns("one")
	time.Sleep(10 * lookEvery) // nothing tells that nothing happens
	assert.Equal(t, 1, strings.Count(r.out.String(), graceOver), "not before the second one is back")
	r.returns("two")
	const soon = 4 * time.Second
	assert.Eventually(t, func() bool { return strings.Count(r.out.String(), graceOver) == 2 }, soon, 10*time.Millisecond)
	assert.NotContains(t, r.out.String(), "cannot be told to look")
	r.terminate()
}
