package share

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

// dial opens a connection to the NFS port, from the role's own network.
func (r *role) dial() net.Conn {
	r.t.Helper()
	var conn net.Conn
	require.NoError(r.t, netns.In(fmt.Sprintf("/proc/%d/ns/net", r.cmd.Process.Pid), func() (err error) {
		conn, err = net.DialTimeout("tcp", "127.0.0.1:2049", patience)
		return err
	}))
	r.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(r.t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// TestThePortIsOpenedAfterItsRules: no client may connect before it is known which clients may, and with which address
// the server sees them. Without rules the share works nevertheless.
func TestThePortIsOpenedAfterItsRules(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no nftables")} {
		logger, hook := logtest.NewNullLogger()
		var done []string
		step := func(name string) func() error {
			return func() error { done = append(done, name); return failure }
		}
		e := entranceSteps{
			dropRefusals: step("refusals"), showOneSource: step("one source"),
			limitClients: func() { done = append(done, "clients") },
			listen:       func() (*ganesha.Listener, error) { return nil, step("port")() },
		}.open(logrus.NewEntry(logger))
		assert.Equal(t, []string{"refusals", "clients", "one source", "port"}, done)
		assert.Equal(t, failure == nil, e.isOneSource)
		assert.Len(t, hook.Entries, map[bool]int{true: 0, false: 3}[failure == nil])
		e.close()
	}
}

// TestAClientConnectsBeforeTheVolumeIsHere: the port is open first, only for listed clients, and the first server
// answers the request that waits.
func TestAClientConnectsBeforeTheVolumeIsHere(t *testing.T) {
	if !own(t) {
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "clients"), []byte("192.0.2.9"), 0o600))
	device, library := filepath.Join(dir, "device"), newLibrary(t)
	r := startRole(t, dir, device, func(o *Options) { o.WakeLibrary = library })
	r.await("Waiting for the volume's device", 1)
	r.wantRules("192.0.2.9")
	conn := r.dial()
	require.NoError(t, os.Symlink(loopDevice(t, newImage(t, 64<<20)), device))
	require.NoError(t, nfsclient.Null(conn))
	r.await(sayServed, 1)
	r.write("file", "data")
	r.terminate()
}

// TestAClientWaitsForTheNextServer: between two servers a client's connection is not refused, and the next server
// answers it.
func TestAClientWaitsForTheNextServer(t *testing.T) {
	if !own(t) {
		return
	}
	library := newLibrary(t)
	r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), func(o *Options) { o.WakeLibrary = library })
	r.await(sayServed, 1)
	r.write("file", "data")
	last := r.dial()
	require.NoError(t, nfsclient.Null(last))
	require.NoError(t, syscall.Kill(r.ganesha(), syscall.SIGKILL))
	_, err := last.Read(make([]byte, 1))
	require.Error(t, err, "the connection to the killed server must end")
	next := r.dial() // at once: a server that young is started again after 0.5 s
	require.NoError(t, nfsclient.Null(next))
	r.wantRead("file", "data")
	assert.NotContains(t, r.out.String(), "without an answer")
	r.terminate()
	assert.NotContains(t, r.out.String(), "cannot be killed")
}

// TestAServerWithoutTheLibraryOpensThePort: the first server finds the port in use and exits. The port is closed for
// the second one.
func TestAServerWithoutTheLibraryOpensThePort(t *testing.T) {
	if !own(t) {
		return
	}
	library := filepath.Join(t.TempDir(), "library.so")
	require.NoError(t, os.WriteFile(library, []byte("no library"), 0o600))
	r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), func(o *Options) { o.WakeLibrary = library })
	r.await("The NFS server has exited", 1)
	r.await(sayServed, 1)
	r.write("file", "data")
	r.terminate()
}
