package ganesha

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAServerChecksUntilItsGracePeriodEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(w *graceWaker, server *os.File, ended chan struct{})
		after  time.Duration
		warned bool
	}{
		{"it says that it is over", func(w *graceWaker, _ *os.File, _ chan struct{}) {
			w.handleLine([]byte("26/11/2026 [main] nfs_lift_grace_locked :STATE :EVENT :NFS Server Now NOT IN GRACE"))
		}, 0, false},
		{"a client was recorded twice", func(w *graceWaker, _ *os.File, _ chan struct{}) {
			w.handleLine([]byte(sayRecorded + "[one]\n"))
			w.handleLine([]byte(sayRecorded + "[two]\n"))
			w.handleLine([]byte(sayRecorded + "[one]\n"))
		}, 0, false},
		{"it has ended", func(_ *graceWaker, _ *os.File, ended chan struct{}) { close(ended) }, 0, false},
		{"it does not know how", func(_ *graceWaker, server *os.File, _ chan struct{}) { _ = server.Close() }, wakeInterval / 2, true},
		{"the time is over", func(*graceWaker, *os.File, chan struct{}) {}, 9*time.Second - wakeInterval/2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cmd := exec.Command("server")
				logger, hook := logtest.NewNullLogger()
				w, err := newGraceWaker(cmd, "wake.go", logrus.NewEntry(logger)) // any existing file
				require.NoError(t, err)
				assert.Equal(t, []string{"LD_PRELOAD=wake.go", "LONGHORN_WAKE_FD=3"}, cmd.Env)
				number, err := syscall.Dup(int(cmd.ExtraFiles[0].Fd())) // as in the server
				require.NoError(t, err)
				server := os.NewFile(uintptr(number), "server")
				ended, over := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(over)
					w.run(10*time.Second, ended)
				}()
				time.Sleep(time.Second + wakeInterval/2)
				looks := make([]byte, 100)
				n, err := server.Read(looks)
				require.NoError(t, err)
				assert.Equal(t, 10, n, "looks in a second")
				for _, name := range []string{"one", "two", "x NOT IN GRACE y"} { // clients choose their names
					w.handleLine([]byte("26/11/2026 [main] fs_ng_read_recov_clids_impl :CLIENT ID :EVENT :added [" + name + "] to clid list"))
				}
				w.handleLine([]byte(sayRecorded + "[x NOT IN GRACE y]\n"))
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
	w, err := newGraceWaker(exec.Command("server"), filepath.Join(t.TempDir(), "none"), quiet())
	require.NoError(t, err)
	assert.Nil(t, w, "without the library")
	w.handleLine([]byte(graceEndText))
}

// sayRecorded is the start of the line in which Ganesha says that it has recorded a client.
const sayRecorded = "26/11/2026 14:23:09 : epoch 6b059db8 : vm : nfs-ganesha-22[svc_1] fs_create_clid_name :CLIENT ID :DEBUG :Created client name "
