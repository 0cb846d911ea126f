package holder

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/device"
)

// slowKeeper answers List when the test lets it.
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

// sessionPair is a holder's side of a socket, which serves, and the other one.
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

// A process that sent what the holder cannot take must not wait for its answer.
func TestWhoSendsWhatCannotBeTakenIsCut(t *testing.T) {
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
			theirs, ended := sessionPair(t, slowKeeper{})
			require.NoError(t, send(theirs))
			<-ended
			if _, _, err := theirs.receive(make([]byte, packetBytes)); !errors.Is(err, io.EOF) {
				assert.ErrorIs(t, err, unix.ECONNRESET)
			}
		})
	}
}

// An answer that does not fit is left out; the holder goes on.
func TestAnAnswerThatDoesNotFitEndsNothing(t *testing.T) {
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
	// Each of these bytes needs six in the answer, which names what was asked.
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

// growth is what a keeper was asked for.
type growth struct {
	volume string
	owner  device.Owner
	size   int64
}

// growingKeeper tells what is asked to grow.
type growingKeeper struct {
	device.Keeper
	can   bool
	asked chan growth // of 1
}

func (k growingKeeper) Resizes() bool { return k.can }

func (k growingKeeper) Resize(_ context.Context, volume string, owner device.Owner, sizeBytes int64) error {
	k.asked <- growth{volume, owner, sizeBytes}
	return device.ErrFenced
}

// A holder of an earlier release says nothing of growth in its hello, and is not asked for what it does not know.
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
