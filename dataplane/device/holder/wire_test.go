package holder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
)

// slowKeeper delays its answer to List until the test allows it.
type slowKeeper struct {
	device.Keeper
	asked, answer chan struct{}
}

func (k slowKeeper) List(context.Context) ([]device.Held, error) {
	k.asked <- struct{}{}
	<-k.answer
	return nil, nil
}

func (k slowKeeper) Resizes() bool { return false }

func (k slowKeeper) MakesNBD() (bool, string) { return false, "a test" }

// sessionPair returns one end of a socket. The holder's session serves the other end.
func sessionPair(t *testing.T, k device.Keeper) (theirs *packets, ended <-chan struct{}) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ours, err := fromFD(pair[0], "ours")
	require.NoError(t, err)
	theirs, err = fromFD(pair[1], "theirs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = theirs.conn.Close() })
	s := &session{socket: ours, keeper: k, ready: make(chan string, 1), cancels: map[uint64]context.CancelFunc{}}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.serve()
	}()
	return theirs, over
}

func TestTwoRequestsOfOneIDAreBothAnswered(t *testing.T) {
	k := slowKeeper{asked: make(chan struct{}, 2), answer: make(chan struct{})}
	theirs, _ := sessionPair(t, k)
	for range 2 {
		require.NoError(t, theirs.send(message{ID: 7, Op: opList}))
		<-k.asked
	}
	close(k.answer)
	room := make([]byte, packetBytes)
	for range 2 {
		m, _, err := theirs.receive(room)
		require.NoError(t, err)
		assert.Equal(t, uint64(7), m.ID)
		assert.Empty(t, m.Error)
	}
	require.NoError(t, theirs.send(message{ID: 8, Op: opHello}))
	m, _, err := theirs.receive(room)
	require.NoError(t, err)
	assert.Equal(t, uint64(8), m.ID)
}

// A process that sent a packet which the holder cannot receive must not wait for the answer.
func TestAPeerThatSendsAnInvalidMessageIsDisconnected(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	many := make([]int, 9)
	for i := range many {
		many[i] = int(null.Fd())
	}
	for name, send := range map[string]func(p *packets) error{
		"no message":           func(p *packets) error { _, err := p.conn.Write([]byte("\x00garbage")); return err },
		"an empty packet":      func(p *packets) error { _, err := p.conn.Write(nil); return err },
		"too many descriptors": func(p *packets) error { return p.send(message{ID: 1, Op: opAttach}, many...) },
		"a version without end": func(p *packets) error {
			return p.send(message{Op: opReady, Version: strings.Repeat("v", versionBytes+1)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := opened(os.DevNull)
			theirs, ended := sessionPair(t, slowKeeper{})
			require.NoError(t, send(theirs))
			<-ended
			assert.Equal(t, before, opened(os.DevNull), "descriptors that came stay open")
			if _, _, err := theirs.receive(make([]byte, packetBytes)); !errors.Is(err, io.EOF) {
				assert.ErrorIs(t, err, unix.ECONNRESET)
			}
		})
	}
}

// The holder drops an answer that does not fit, and continues.
func TestAnAnswerOfTheWrongKindIsIgnored(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	h := &holder{log: logrus.NewEntry(log), devices: device.NewLocal(device.Options{})}
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := listenControl(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.serveControl(ctx, l)
	}()
	c, err := net.Dial("unixpacket", path)
	require.NoError(t, err)
	defer c.Close()
	// Each of these bytes needs six bytes in the answer, which names the operation of the request.
	_, err = c.Write([]byte(`{"op":"` + strings.Repeat("<", 30<<10) + `"}`))
	require.NoError(t, err)
	n, err := c.Read(make([]byte, packetBytes))
	assert.LessOrEqual(t, n, 0)
	assert.ErrorIs(t, err, io.EOF)
	_, err = Query(t.Context(), path)
	assert.NoError(t, err)
	cancel()
	<-served
}

// growth is one request to a keeper to resize a device.
type growth struct {
	volume string
	owner  device.Owner
	size   int64
}

// growingKeeper reports the requests to resize a device.
type growingKeeper struct {
	device.Keeper
	can   bool
	asked chan growth // capacity 1
}

func (growingKeeper) MakesNBD() (bool, string) { return false, "a test" }

func (k growingKeeper) Resizes() bool { return k.can }

func (k growingKeeper) Resize(_ context.Context, volume string, owner device.Owner, sizeBytes int64) error {
	k.asked <- growth{volume, owner, sizeBytes}
	return device.ErrFenced
}

// A holder of an earlier release does not mention growth in its hello, and gets no request that it does not know.
func TestADeviceGrowsIfTheHolderCanDoThat(t *testing.T) {
	for _, can := range []bool{true, false} {
		k := growingKeeper{can: can, asked: make(chan growth, 1)}
		theirs, ended := sessionPair(t, k)
		c, err := newClient(theirs)
		require.NoError(t, err)
		assert.Equal(t, can, c.Resizes())
		owner := device.Owner{Engine: "e", Generation: 3, Session: "s"}
		err = c.Resize(t.Context(), "vol", owner, 8<<20)
		if can {
			require.ErrorIs(t, err, device.ErrFenced, "the keeper's answer")
			assert.Equal(t, growth{volume: "vol", owner: owner, size: 8 << 20}, <-k.asked)
		} else {
			require.ErrorIs(t, err, device.ErrNoResize)
			assert.Empty(t, k.asked, "it was asked")
		}
		require.NoError(t, theirs.conn.Close())
		<-ended
	}
}

// handingKeeper records the files of the descriptors that are attached, and hands one out.
type handingKeeper struct {
	device.Keeper
	attached chan [2]string // their files: the connection, the file
	given    string         // a path
}

func (k handingKeeper) Resizes() bool { return true }

func (k handingKeeper) MakesNBD() (bool, string) { return false, "a test" }

func (k handingKeeper) Attach(_ context.Context, spec device.Spec, conn, file int) (device.Held, error) {
	var to [2]string
	for i, fd := range []int{conn, file} {
		to[i], _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	k.attached <- to
	return device.Held{Spec: spec}, nil
}

func (k handingKeeper) Adopt(_ context.Context, volume string, _ device.Owner) (int, device.Held, error) {
	fd, err := unix.Open(k.given, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, device.Held{Spec: device.Spec{Volume: volume}}, err
}

// Of two descriptors in one packet the first is the connection. In the other order the holder would keep the file in
// its place.
func TestDescriptorsComeInTheirOrder(t *testing.T) {
	dir := t.TempDir()
	var files []*os.File
	for _, name := range []string{"conn", "file", "given"} {
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		defer f.Close()
		files = append(files, f)
	}
	k := handingKeeper{attached: make(chan [2]string, 1), given: files[2].Name()}
	theirs, ended := sessionPair(t, k)
	c, err := newClient(theirs)
	require.NoError(t, err)
	_, err = c.Attach(t.Context(), device.Spec{Volume: "vol"}, int(files[0].Fd()), int(files[1].Fd()))
	require.NoError(t, err)
	assert.Equal(t, [2]string{files[0].Name(), files[1].Name()}, <-k.attached)
	fd, held, err := c.Adopt(t.Context(), "vol", device.Owner{})
	require.NoError(t, err)
	assert.Equal(t, "vol", held.Volume)
	to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	require.NoError(t, unix.Close(fd))
	require.NoError(t, err)
	assert.Equal(t, k.given, to)
	require.NoError(t, theirs.conn.Close())
	<-ended
	for _, f := range files { // the session closes its own descriptors after it has answered
		assert.Eventually(t, func() bool { return opened(f.Name()) == 1 }, 10*time.Second, time.Millisecond, "%s is open elsewhere", f.Name())
	}
}

// opened counts the descriptors of this process that lead to a path.
func opened(path string) int {
	all, _ := os.ReadDir("/proc/self/fd")
	n := 0
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

// An attachment with another number of descriptors is refused, and the session continues.
func TestAnAttachmentHasTwoDescriptors(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	k := handingKeeper{attached: make(chan [2]string, 1)}
	theirs, _ := sessionPair(t, k)
	c, err := newClient(theirs)
	require.NoError(t, err)
	for n := range 4 {
		fds := []int{int(null.Fd()), int(null.Fd()), int(null.Fd())}[:n]
		_, err := c.call(t.Context(), message{Op: opAttach, Spec: &device.Spec{Volume: "vol"}}, fds...)
		if n == 2 {
			require.NoError(t, err)
			<-k.attached
			continue
		}
		require.ErrorContains(t, err, fmt.Sprintf("must have a device and 2 descriptors, but has %d descriptors", n))
	}
	_, err = c.call(t.Context(), message{Op: opAttach}, int(null.Fd()), int(null.Fd()))
	require.Error(t, err, "without a volume")
	assert.Empty(t, k.attached)
}
