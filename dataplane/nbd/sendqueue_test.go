package nbd

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// valve is a connection on which writes succeed, wait or fail, as the test decides. Closing it does not end a write.
type valve struct {
	net.Conn // nil: only the methods below are used
	entered  chan struct{}
	result   chan error
	wrote    bytes.Buffer
	shut     sync.Once
	closed   chan struct{}
}

func newValve() *valve {
	return &valve{entered: make(chan struct{}), result: make(chan error), closed: make(chan struct{})}
}

func (v *valve) Read([]byte) (int, error) { <-v.closed; return 0, net.ErrClosed }

func (v *valve) Write(p []byte) (int, error) {
	v.entered <- struct{}{}
	if err := <-v.result; err != nil {
		return 0, err
	}
	return v.wrote.Write(p)
}

func (v *valve) Close() error {
	v.shut.Do(func() { close(v.closed) })
	return nil
}

func (v *valve) isClosed() bool {
	select {
	case <-v.closed:
		return true
	default:
		return false
	}
}

// fates records the fates that owners learn.
type fates struct {
	mu   sync.Mutex
	told []string // guarded by mu
	n    chan struct{}
}

func newFates() *fates { return &fates{n: make(chan struct{}, 2000)} }

type owner struct {
	name string
	to   *fates
}

func (o owner) frameDone(f sendResult) {
	o.to.mu.Lock()
	defer o.to.mu.Unlock()
	o.to.told = append(o.to.told, o.name+[]string{" sent", " broken", " unsent"}[f])
	o.to.n <- struct{}{}
}

func (f *fates) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told)
}

func (f *fates) frame(name, payload string) frame {
	return frame{head: []byte(name), payload: []byte(payload), owner: owner{name, f}}
}

func TestSendQueue(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error // of the first write
		withdraw string
		told     []string
		wire     string
	}{
		{"all goes well → in order", nil, "", []string{"a sent", "b sent", "c sent"}, "aAbBcC"},
		{"one withdrawn while it waits → never on the wire", nil, "b", []string{"a sent", "c sent"}, "aAcC"},
		{"one withdrawn that is being written → too late", nil, "a", []string{"a sent", "b sent", "c sent"}, "aAbBcC"},
		{"the first write fails → what waited was not sent", errors.New("cut"), "", []string{"b unsent", "c unsent", "a broken"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, to := newValve(), newFates()
			q := newSendQueue(v)
			q.send(to.frame("a", "A"))
			<-v.entered // the writer is in its first write
			q.send(to.frame("b", "B"))
			q.send(to.frame("c", "C"))
			if c.withdraw != "" {
				assert.Equal(t, c.withdraw == "b", q.withdraw(owner{c.withdraw, to}), "withdraw told the wrong thing")
			}
			v.result <- c.err
			drained := make(chan struct{})
			go func() { q.wait(); close(drained) }()
			for open := true; open; {
				select {
				case <-v.entered:
					v.result <- nil
				case <-drained:
					open = false
				}
			}
			told := to.all()
			assert.Equal(t, c.told, told)
			assert.Equal(t, c.wire, v.wrote.String())
			failed := c.err != nil
			assert.Equal(t, failed, v.isClosed(), "closed %v after %v", v.isClosed(), c.err)
			if c.err != nil {
				q.send(to.frame("d", "D"))
				told := to.all()
				assert.Equal(t, "d unsent", told[len(told)-1], "a frame after the failure")
			}
		})
	}
}

func TestTheRestOfAFrame(t *testing.T) {
	for n, want := range []string{"head|load", "ead|load", "ad|load", "d|load", "|load", "|oad", "|ad", "|d", "|"} {
		f := frame{head: []byte("head"), payload: []byte("load")}.after(n)
		got := string(f.head) + "|" + string(f.payload)
		assert.Equal(t, want, got, "after %d bytes %q is left", n, got)
		assert.Equal(t, 8-n, f.size())
	}
}

// tcpPair returns the two ends of a TCP connection.
func tcpPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ours, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	theirs, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	_ = theirs.SetDeadline(time.Now().Add(20 * time.Second))
	return ours, theirs
}

// overTLS creates the two ends of a TLS connection over the two ends of another connection.
func overTLS(pair func(*testing.T) (net.Conn, net.Conn)) func(*testing.T) (net.Conn, net.Conn) {
	return func(t *testing.T) (net.Conn, net.Conn) {
		t.Helper()
		ours, theirs := pair(t)
		config, err := newServerTLS()
		require.NoError(t, err)
		type end struct {
			*secureConn
			err error
		}
		server := make(chan end, 1)
		go func() {
			s, err := newSecureConn(theirs, newSource(theirs), func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
			server <- end{s, err}
		}()
		client, err := newSecureConn(ours, newSource(ours), func(c net.Conn) *tls.Conn { return tls.Client(c, newClientTLS()) })
		require.NoError(t, err)
		s := <-server
		require.NoError(t, s.err)
		return client, s.secureConn
	}
}

// random returns n bytes in which any two parts differ.
func random(n int) string {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], r.Uint64())
	}
	return string(p)
}

// large is more than the kernel accepts for a peer that does not read.
const large = 24 << 20

func TestNoSenderWaitsForThePeer(t *testing.T) {
	ours, theirs := tcpPair(t)
	q, to := newSendQueue(ours), newFates()
	big := random(large)
	q.send(to.frame("a", big)) // the peer reads nothing, so this would not return if it waited
	q.send(to.frame("b", "B"))
	q.send(to.frame("c", "C"))
	told := to.all()
	require.Empty(t, told, "before the peer has read anything")
	assert.False(t, q.withdraw(owner{"a", to}))
	assert.True(t, q.withdraw(owner{"b", to}), "a frame half sent was withdrawn, or one that waits was not")
	want := "a" + big + "cC"
	got := make([]byte, len(want))
	_, err := io.ReadFull(theirs, got)
	require.NoError(t, err)
	q.wait()
	told = to.all()
	assert.Equal(t, []string{"a sent", "c sent"}, told)
	assert.Equal(t, want, string(got))
	q.fail(errors.New("the end"))
}

// fillSocket writes to a connection until the kernel accepts no further bytes. It returns how many the kernel accepted.
func fillSocket(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	for p := make([]byte, 1<<20); ; {
		var m int
		require.NoError(t, raw.Write(func(fd uintptr) bool { m, err = syscall.Write(int(fd), p); return true }))
		switch {
		case err == nil:
			n += m
		case len(p) > 1:
			p = p[:1]
		default:
			return n
		}
	}
}

// asSender makes a sender of these frames take the queue. The sender is about to offer them.
func asSender(q *sendQueue, frames ...frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing, q.batch = true, append(q.batch, frames...)
}

func TestFramesOfWhichNothingWasTakenAreTheFirstThatWait(t *testing.T) {
	ours, theirs := unixPair(t)
	filler := fillSocket(t, ours)
	q, to := newSendQueue(ours), newFates()
	asSender(q, to.frame("a", "A"), to.frame("b", "B"))
	n, err := q.offer()
	require.Zero(t, n, "a full socket took %d bytes", n)
	require.NoError(t, err)
	q.send(to.frame("c", "C")) // in the meantime
	q.endOffer(n, err)
	got := make([]byte, filler+6)
	_, err = io.ReadFull(theirs, got)
	require.NoError(t, err)
	q.wait()
	assert.Equal(t, "aAbBcC", string(got[filler:]))
	assert.Equal(t, []string{"a sent", "b sent", "c sent"}, to.all())
}

// Frames that are left with a sender before it offers its own frame are sent together with that frame, in one system
// call.
func TestASenderOffersWhatOthersLeftWithIt(t *testing.T) {
	ours, theirs := unixPair(t)
	q, to := newSendQueue(ours), newFates()
	offers := 0
	offer := q.offered
	q.offered = func(fd uintptr) bool { offers++; return offer(fd) }
	q.yield = func() {
		q.send(to.frame("b", "B"))
		q.send(to.frame("c", "C"))
		q.send(to.frame("d", "D"))
		assert.True(t, q.withdraw(owner{"c", to}), "c was not begun")
		assert.Empty(t, to.all())
	}
	q.send(to.frame("a", "A"))
	got := make([]byte, 6)
	_, err := io.ReadFull(theirs, got)
	require.NoError(t, err)
	assert.Equal(t, "aAbBdD", string(got))
	assert.Equal(t, 1, offers)
	assert.Equal(t, []string{"a sent", "b sent", "d sent"}, to.all())
	assert.False(t, q.isWriting())
}

func TestAFrameCanBeWithdrawnBeforeItIsOffered(t *testing.T) {
	ours, _ := unixPair(t)
	q, to := newSendQueue(ours), newFates()
	q.yield = func() { assert.True(t, q.withdraw(owner{"a", to})) }
	q.send(to.frame("a", "A"))
	q.yield = func() { q.fail(errors.New("lost")) }
	q.send(to.frame("b", "B"))
	q.wait()
	assert.Equal(t, []string{"b unsent"}, to.all())
}

func unixPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	require.NoError(t, err)
	defer l.Close()
	ours, err = net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	theirs, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	_ = theirs.SetDeadline(time.Now().Add(20 * time.Second))
	return ours, theirs
}

func TestAQueueThatFailsNotifiesEachOwnerOnce(t *testing.T) {
	ours, _ := tcpPair(t)
	q, to := newSendQueue(ours), newFates()
	q.send(to.frame("a", random(large)))
	q.send(to.frame("b", "B"))
	q.fail(errors.New("the first reason"))
	q.fail(errors.New("another"))
	q.wait()
	told := to.all()
	slices.Sort(told)
	assert.Equal(t, []string{"a broken", "b unsent"}, told)
	assert.EqualError(t, q.explain(io.EOF), "the first reason")
}

// TestFramesOfManySendersStayWhole has senders of small and large frames at once, on sockets that are sometimes full.
func TestFramesOfManySendersStayWhole(t *testing.T) {
	for name, pair := range map[string]func(*testing.T) (net.Conn, net.Conn){
		"tcp": tcpPair, "unix": unixPair, "pipe": func(*testing.T) (net.Conn, net.Conn) { return net.Pipe() },
		"tls over tcp": overTLS(tcpPair), "tls over unix": overTLS(unixPair),
	} {
		t.Run(name, func(t *testing.T) {
			const senders, frames = 8, 60
			ours, theirs := pair(t)
			q, to := newSendQueue(ours), newFates()
			to.n = make(chan struct{}, senders*frames)
			var wg sync.WaitGroup
			for s := range senders {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(7, uint64(s)))
					for i := range frames {
						n := rng.IntN(64)
						if rng.IntN(4) == 0 {
							n = rng.IntN(512 << 10)
						}
						head := binary.BigEndian.AppendUint32(nil, uint32(s))
						head = binary.BigEndian.AppendUint32(head, uint32(i))
						head = binary.BigEndian.AppendUint32(head, uint32(n))
						q.send(frame{head: head, payload: bytes.Repeat([]byte{byte(s*31 + i)}, n), owner: owner{"", to}})
					}
				})
			}
			next := make([]uint32, senders)
			head, payload := make([]byte, 12), make([]byte, 512<<10)
			for range senders * frames {
				_, err := io.ReadFull(theirs, head)
				require.NoError(t, err)
				s, i, n := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
				require.Less(t, s, uint32(senders), "frame %d of sender %d with %d bytes", i, s, n)
				require.Equal(t, next[s], i)
				require.LessOrEqual(t, n, uint32(len(payload)))
				next[s]++
				_, err = io.ReadFull(theirs, payload[:n])
				require.NoError(t, err)
				require.Equal(t, int(n), bytes.Count(payload[:n], []byte{byte(s*31 + i)}), "frame %d of sender %d is mixed with others", i, s)
			}
			wg.Wait()
			q.wait()
			for _, f := range to.all() {
				require.Equal(t, " sent", f, "a frame was told")
			}
			assert.Len(t, to.all(), senders*frames)
			q.fail(errors.New("the end"))
		})
	}
}

func TestAnOfferThatEndsWithTheConnection(t *testing.T) {
	for _, c := range []struct {
		name      string
		lost      bool // during the offer
		n         int  // bytes taken of two frames of two bytes
		err       error
		want      []string
		explained string
	}{
		{"nothing taken, then lost → not sent", true, 0, nil, []string{"a unsent", "b unsent"}, "lost"},
		{"a part taken, then lost → broken", true, 1, nil, []string{"a broken", "b unsent"}, "lost"},
		{"the first taken, then lost → it was sent", true, 2, nil, []string{"a sent", "b unsent"}, "lost"},
		{"a part of the second taken, then lost → it is broken", true, 3, nil, []string{"a sent", "b broken"}, "lost"},
		{"all taken, then lost → sent", true, 4, nil, []string{"a sent", "b sent"}, "lost"},
		{"the kernel refuses → not sent, and the connection is lost", false, 0, syscall.EPIPE, []string{"a unsent", "b unsent"}, "send: broken pipe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, _ := tcpPair(t)
			q, to := newSendQueue(ours), newFates()
			asSender(q, to.frame("a", "A"), to.frame("b", "B"))
			if c.lost {
				q.fail(errors.New("lost"))
			}
			q.endOffer(c.n, c.err)
			q.send(to.frame("z", "Z"))
			q.wait()
			assert.Equal(t, append(c.want, "z unsent"), to.all())
			assert.EqualError(t, q.explain(nil), c.explained)
		})
	}
}

func TestAnOfferThatIsTakenInPart(t *testing.T) {
	for n := range 7 {
		ours, theirs := tcpPair(t)
		q, to := newSendQueue(ours), newFates()
		asSender(q, to.frame("a", "A"), to.frame("b", "B"), to.frame("c", "C"))
		q.pending = []frame{to.frame("d", "D")}
		_, err := ours.Write([]byte("aAbBcC")[:n]) // the bytes that the kernel took
		require.NoError(t, err)
		q.endOffer(n, nil)
		got := make([]byte, 8)
		_, err = io.ReadFull(theirs, got)
		require.NoError(t, err)
		q.wait()
		assert.Equal(t, "aAbBcCdD", string(got), "%d bytes taken", n)
		assert.Equal(t, []string{"a sent", "b sent", "c sent", "d sent"}, to.all(), "%d bytes taken", n)
		q.fail(errors.New("the end"))
	}
}

func TestTheWriterFirstSendsTheRestOfAFrame(t *testing.T) {
	ours, theirs := tcpPair(t)
	q, to := newSendQueue(ours), newFates()
	q.batch = []frame{to.frame("a", "A").after(1)}
	q.pending = []frame{to.frame("b", "B"), to.frame("c", "C"), to.frame("d", "D")}
	q.startWriterLocked()
	got := make([]byte, 7)
	_, err := io.ReadFull(theirs, got)
	require.NoError(t, err)
	assert.Equal(t, "AbBcCdD", string(got))
	q.wait()
	assert.Equal(t, []string{"a sent", "b sent", "c sent", "d sent"}, to.all())
}

// TestAWriteLimitAppliesToEachWrite waits for a deadline between two writes.
func TestAWriteLimitAppliesToEachWrite(t *testing.T) {
	for name, pair := range map[string]func(*testing.T) (net.Conn, net.Conn){"offered": tcpPair, "by the writer": func(*testing.T) (net.Conn, net.Conn) { return net.Pipe() }} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			q, to := newSendQueue(ours), newFates()
			q.limitWrites(time.Hour)
			_ = ours.SetWriteDeadline(time.Unix(1, 0))
			q.send(to.frame("a", "A"))
			_, err := io.ReadFull(theirs, make([]byte, 2))
			assert.NoError(t, err)
			q.wait()
			assert.Equal(t, []string{"a sent"}, to.all())
			q.fail(errors.New("the end"))
		})
	}
}

// One system call accepts a limited number of pieces of memory.
func TestASenderOffersNoMoreThanTheKernelTakes(t *testing.T) {
	ours, theirs := unixPair(t)
	q, to := newSendQueue(ours), newFates()
	q.yield = func() {
		for range maxVector {
			q.send(frame{head: []byte("x"), owner: owner{"x", to}})
		}
	}
	q.send(to.frame("a", "A"))
	got := make([]byte, 2+maxVector)
	_, err := io.ReadFull(theirs, got)
	require.NoError(t, err)
	q.wait()
	assert.Len(t, to.all(), 1+maxVector)
	assert.NotContains(t, to.all(), "x unsent")
}
