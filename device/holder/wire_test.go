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
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/device"
)

// slowKeeper answers List when it is told to.
type slowKeeper struct {
	device.Keeper
	asked, answer chan struct{}
}

func (k slowKeeper) List(context.Context) ([]device.Held, error) {
	k.asked <- struct{}{}
	<-k.answer
	return nil, nil
}

// sessionPair is a holder's side of a socket, which serves, and the other one.
func sessionPair(t *testing.T, k device.Keeper) (theirs *packets, ended <-chan struct{}) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, err := fromFD(pair[0], "ours")
	must(t, err)
	theirs, err = fromFD(pair[1], "theirs")
	must(t, err)
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
		must(t, theirs.send(message{ID: 7, Op: opList}))
		<-k.asked
	}
	close(k.answer)
	room := make([]byte, packetBytes)
	for range 2 {
		if m, _, err := theirs.receive(room); err != nil || m.ID != 7 || m.Error != "" {
			t.Errorf("answer %+v, %v", m, err)
		}
	}
	must(t, theirs.send(message{ID: 8, Op: opHello}))
	if m, _, err := theirs.receive(room); err != nil || m.ID != 8 {
		t.Errorf("afterwards: %+v, %v", m, err)
	}
}

// Whoever sent what the holder cannot take must not wait for its answer.
func TestWhoSendsWhatCannotBeTakenIsCut(t *testing.T) {
	null, err := os.Open(os.DevNull)
	must(t, err)
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
			must(t, send(theirs))
			<-ended
			if _, _, err := theirs.receive(make([]byte, packetBytes)); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("got %v", err)
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
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.serveControl(ctx, l)
	}()
	c, err := net.Dial("unixpacket", path)
	must(t, err)
	defer c.Close()
	// Each of these bytes needs six in the answer, which names what was asked.
	_, err = c.Write([]byte(`{"op":"` + strings.Repeat("<", 30<<10) + `"}`))
	must(t, err)
	if n, err := c.Read(make([]byte, packetBytes)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("answer of %d bytes, %v", n, err)
	}
	if _, err := Query(t.Context(), path); err != nil {
		t.Error(err)
	}
	cancel()
	<-served
}
