package nbd_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

const (
	optGo, optStartTLS, optAuth, optAuthTLS = 7, 5, 0x4c480001, 0x4c480002
	repAck, repInfo, repAuthProof           = 1, 3, 0x4c480002
	errUnsup, errPolicy, errInvalid         = 1<<31 + 1, 1<<31 + 2, 1<<31 + 3
	errTLSReqd                              = 1<<31 + 5
)

func secretNamed(name string) []byte { return []byte("the secret of volume " + name) }

// securing returns the options of a server that offers TLS for exports of these names. Each export has its own secret.
func securing(only bool, names ...string) nbd.ServerOptions {
	return nbd.ServerOptions{
		Secret: func(name string) ([]byte, bool) { return secretNamed(name), true },
		Secrets: func() (all [][]byte) {
			for _, n := range names {
				all = append(all, secretNamed(n))
			}
			return all
		},
		TLSOnly: func(string) bool { return only },
	}
}

// listenTCP is listen on the loopback device, like in an instance manager.
func listenTCP(t testing.TB, x nbd.Exporter, opts nbd.ServerOptions) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
	return l.Addr().String()
}

// between is a proxy between a client and a server. It passes each pair of connections to a test.
func between(t *testing.T, server string, handle func(client, server net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer near.Close()
				far, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer far.Close()
				_ = near.SetDeadline(time.Now().Add(patience))
				_ = far.SetDeadline(time.Now().Add(patience))
				handle(near, far)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return l.Addr().String()
}

// pass copies in both directions until either side ends. It shows the copied bytes to each function.
func pass(a, b io.ReadWriteCloser, toB, toA func([]byte)) {
	var back sync.WaitGroup
	copying := func(to, from io.ReadWriteCloser, show func([]byte)) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			show(buf[:n])
			if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
				return
			}
		}
	}
	back.Go(func() { copying(a, b, toA) })
	copying(b, a, toB)
	back.Wait()
}

// record collects the bytes that several goroutines add to it.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (r *record) add(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b.Write(p)
}

func (r *record) has(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.b.Bytes(), []byte(what))
}

func TestAReaderOfTheWireSeesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		tls  bool
	}{{"over TLS → nothing", true}, {"without → all of it, so the test can tell", false}} {
		t.Run(c.name, func(t *testing.T) {
			x := serving(memory.New(8 << 20).Export("rw/pvc-of-somebody"))
			server := listenTCP(t, x, securing(false, "rw/pvc-of-somebody"))
			var wire record
			address := between(t, server, func(near, far net.Conn) { pass(near, far, wire.add, wire.add) })
			client, err := nbd.Dial(within(t), "tcp", address, "rw/pvc-of-somebody", nbd.DialOptions{Secret: secretNamed("rw/pvc-of-somebody"), TLS: c.tls})
			require.NoError(t, err)
			words := []byte(strings.Repeat("what a user keeps to himself ", 4096))
			require.NoError(t, client.WriteAt(within(t), words, 0, false))
			got := make([]byte, len(words))
			require.NoError(t, client.ReadAt(within(t), got, 0))
			assert.True(t, bytes.Equal(words, got))
			require.NoError(t, client.Close())
			for _, what := range []string{"keeps to himself", "pvc-of-somebody", "base:allocation", "the secret of"} {
				assert.Equal(t, !c.tls && what != "the secret of", wire.has(what), "%q on the wire", what)
			}
		})
	}
}

// relay terminates TLS on both of its sides. It shows the client its own certificate.
func relay(t *testing.T, server string, handle func(client, server *tls.Conn)) string {
	return between(t, server, func(near, far net.Conn) {
		play := func(c net.Conn, n int) { _, _ = io.CopyN(io.Discard, c, int64(n)) }
		_, _ = io.WriteString(near, "NBDMAGICIHAVEOPT\x00\x03")
		play(near, 4+16)
		_, _ = io.WriteString(near, "\x00\x03\xe8\x89\x04\x55\x65\xa9"+u32(optStartTLS)+u32(repAck)+u32(0))
		play(far, 18)
		_, _ = io.WriteString(far, "\x00\x00\x00\x03IHAVEOPT"+u32(optStartTLS)+u32(0))
		play(far, 20)
		client := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
		upstream := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
		if client.Handshake() == nil && upstream.Handshake() == nil {
			handle(client, upstream)
		}
	})
}

func TestARelayThatEndsTLSIsRefused(t *testing.T) {
	answerProof := func(proof string) string {
		head := func(reply uint32, data string) string {
			return "\x00\x03\xe8\x89\x04\x55\x65\xa9" + u32(optAuthTLS) + u32(reply) + u32(uint32(len(data))) + data
		}
		if proof == "" {
			return head(repAck, "")
		}
		return head(repAuthProof, proof) + head(repAck, "")
	}
	var policy *nbd.PolicyError
	for _, c := range []struct {
		name   string
		answer func(client, server io.ReadWriteCloser) // after the handshakes
		check  func(t *testing.T, err error)
	}{
		{"it passes everything on → the server refuses the proof", func(client, server io.ReadWriteCloser) {
			pass(client, server, func([]byte) {}, func([]byte) {})
		}, func(t *testing.T, err error) { assert.ErrorAs(t, err, &policy) }},
		{"it acknowledges in the server's place → no proof, refused", func(client, _ io.ReadWriteCloser) {
			_, _ = io.WriteString(client, answerProof(""))
			_, _ = io.Copy(io.Discard, client)
		}, func(t *testing.T, err error) { assert.ErrorIs(t, err, nbd.ErrImpostor) }},
		{"it makes a proof up → refused", func(client, _ io.ReadWriteCloser) {
			_, _ = io.WriteString(client, answerProof(strings.Repeat("x", 32)))
			_, _ = io.Copy(io.Discard, client)
		}, func(t *testing.T, err error) { assert.ErrorIs(t, err, nbd.ErrImpostor) }},
		{"it sends the client's proof back → refused", func(client, _ io.ReadWriteCloser) {
			option := make([]byte, 16+32)
			_, _ = io.ReadFull(client, option)
			_, _ = io.WriteString(client, answerProof(string(option[16:])))
			_, _ = io.Copy(io.Discard, client)
		}, func(t *testing.T, err error) { assert.ErrorIs(t, err, nbd.ErrImpostor) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := serving(memory.New(1 << 20).Export("vol"))
			server := listenTCP(t, x, securing(true, "vol"))
			var seen record
			address := relay(t, server, func(client, upstream *tls.Conn) { c.answer(spied{client, seen.add}, upstream) })
			_, err := nbd.Dial(within(t), "tcp", address, "vol", nbd.DialOptions{Secret: secretNamed("vol"), TLS: true})
			c.check(t, err)
			assert.Empty(t, x.opens(), "opened")
			assert.False(t, seen.has("vol"), "the relay learned a name")
		})
	}
}

// spied is a connection that shows the bytes that it reads.
type spied struct {
	*tls.Conn
	show func([]byte)
}

func (s spied) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.show(p[:n])
	return n, err
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(7)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

func TestTLSThatIsDemandedCannotBeTalkedAway(t *testing.T) {
	for _, c := range []struct{ name, answer string }{
		{"said not to be supported", u32(errUnsup) + u32(0)},
		{"said to be refused by policy", u32(errPolicy) + u32(0)},
		{"said to be invalid", u32(errInvalid) + u32(0)},
		{"acknowledged, and then not begun", u32(repAck) + u32(0) + "\x00\x03\xe8\x89\x04\x55\x65\xa9" + u32(optAuthTLS) + u32(repAck) + u32(0)},
		{"acknowledged twice", strings.Repeat(u32(repAck)+u32(0)+"\x00\x03\xe8\x89\x04\x55\x65\xa9"+u32(optStartTLS), 2) + u32(repAck) + u32(0)},
		{"answered by garbage", "garbage and more of it"},
		{"answered by the end", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			said := make(chan string, 1)
			go func() {
				defer ours.Close()
				_, _ = io.WriteString(ours, "NBDMAGICIHAVEOPT\x00\x03")
				first := make([]byte, 4+16)
				_, _ = io.ReadFull(ours, first)
				rest := make(chan string, 1)
				go func() {
					b, _ := io.ReadAll(ours)
					rest <- string(b)
				}()
				if c.answer != "" {
					_, _ = io.WriteString(ours, "\x00\x03\xe8\x89\x04\x55\x65\xa9"+u32(optStartTLS)+c.answer)
				}
				if c.answer == "" {
					_ = ours.Close()
				}
				said <- string(first) + <-rest
			}()
			_, err := nbd.NewClient(within(t), theirs, "vol", nbd.DialOptions{Secret: secretNamed("vol"), TLS: true, Timeout: 5 * time.Second})
			require.Error(t, err)
			all := receive(t, said, "what the client said")
			assert.Equal(t, "\x00\x00\x00\x03IHAVEOPT"+u32(optStartTLS)+u32(0), all[:20], "all that is said without TLS")
			assert.NotContains(t, all, "vol")
			assert.NotContains(t, all[20:], "IHAVEOPT", "an option without TLS")
		})
	}
	t.Run("without a secret → not even tried", func(t *testing.T) {
		address := listenTCP(t, serving(memory.New(1<<20).Export("vol")), securing(false, "vol"))
		_, err := nbd.Dial(within(t), "tcp", address, "vol", nbd.DialOptions{TLS: true})
		assert.ErrorContains(t, err, "TLS requires a secret")
	})
}

func TestWhoMayOpenAnExport(t *testing.T) {
	old := nbd.ServerOptions{Secret: securing(false).Secret}
	var policy *nbd.PolicyError
	var option *nbd.OptionError
	for _, c := range []struct {
		name   string
		server nbd.ServerOptions
		client nbd.DialOptions
		as     any // nil if the export opened
	}{
		{"TLS, which is offered → opened", securing(false, "other", "vol"), nbd.DialOptions{Secret: secretNamed("vol"), TLS: true}, nil},
		{"TLS, which is demanded → opened", securing(true, "vol"), nbd.DialOptions{Secret: secretNamed("vol"), TLS: true}, nil},
		{"no TLS, as an engine of an earlier release, which is let in → opened", securing(false, "vol"), nbd.DialOptions{Secret: secretNamed("vol")}, nil},
		{"no TLS, which is demanded → refused", securing(true, "vol"), nbd.DialOptions{Secret: secretNamed("vol")}, &option},
		{"TLS, of a server of an earlier release → refused", old, nbd.DialOptions{Secret: secretNamed("vol"), TLS: true}, &option},
		{"no TLS, of a server of an earlier release → opened", old, nbd.DialOptions{Secret: secretNamed("vol")}, nil},
		{"a wrong secret → refused", securing(true, "vol"), nbd.DialOptions{Secret: []byte("guess"), TLS: true}, &policy},
		{"the secret of another export → refused", securing(true, "vol", "other"), nbd.DialOptions{Secret: secretNamed("other"), TLS: true}, &policy},
		{"the right secret of an export that is not there → refused", securing(true, "other"), nbd.DialOptions{Secret: secretNamed("vol"), TLS: true}, &policy},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := serving(memory.New(1 << 20).Export("vol"))
			client, err := nbd.Dial(within(t), "tcp", listenTCP(t, x, c.server), "vol", c.client)
			if c.as != nil {
				require.ErrorAs(t, err, c.as)
				assert.Empty(t, x.opens())
				return
			}
			require.NoError(t, err)
			require.NoError(t, client.WriteAt(within(t), []byte("words"), 5, true))
			require.NoError(t, client.Close())
			o := x.opens()
			require.Len(t, o, 1)
			assert.True(t, o[0].Authenticated)
		})
	}
}

// rawTLS returns a client over TLS. The test sends its messages one by one.
func rawTLS(t *testing.T, address string, before func(c *rawClient)) (*rawClient, *tls.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	c := &rawClient{t, conn}
	c.read(18)
	c.write("\x00\x00\x00\x03")
	if before != nil {
		before(c)
	}
	reply, _ := c.option(optStartTLS, "")
	require.Equal(t, uint32(repAck), reply)
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, secure.Handshake())
	return &rawClient{t, secure}, secure
}

// proofOver computes the proof according to its description.
func proofOver(t *testing.T, c *tls.Conn, secret []byte, by string) string {
	state := c.ConnectionState()
	binding, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	require.NoError(t, err)
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("longhorn-nbd-auth-v2" + by + string(binding)))
	return string(m.Sum(nil))
}

func TestProofsOverTLS(t *testing.T) {
	x := serving(memory.New(1<<20).Export("vol"), memory.New(1<<20).Export("other"))
	address := listenTCP(t, x, securing(true, "vol", "other"))
	goTo := func(c *rawClient, name string) uint32 {
		reply, _ := c.option(optGo, u32(uint32(len(name)))+name+u16(0))
		return reply
	}
	t.Run("both ends prove the secret → opened", func(t *testing.T) {
		c, s := rawTLS(t, address, nil)
		reply, proof := c.option(optAuthTLS, proofOver(t, s, secretNamed("vol"), "client"))
		require.Equal(t, uint32(repAuthProof), reply)
		assert.Equal(t, proofOver(t, s, secretNamed("vol"), "server"), proof)
		ack, _ := c.optionReply(optAuthTLS)
		assert.Equal(t, uint32(repAck), ack)
		assert.Equal(t, uint32(errPolicy), goTo(c, "other"), "an export with another secret")
		assert.Equal(t, uint32(repInfo), goTo(c, "vol"))
	})
	t.Run("a proof of another connection → refused", func(t *testing.T) {
		_, other := rawTLS(t, address, nil)
		c, _ := rawTLS(t, address, nil)
		reply, _ := c.option(optAuthTLS, proofOver(t, other, secretNamed("vol"), "client"))
		assert.Equal(t, uint32(errPolicy), reply)
		assert.Equal(t, uint32(errPolicy), goTo(c, "vol"))
	})
	t.Run("the server's proof in the client's place → refused", func(t *testing.T) {
		c, s := rawTLS(t, address, nil)
		reply, _ := c.option(optAuthTLS, proofOver(t, s, secretNamed("vol"), "server"))
		assert.Equal(t, uint32(errPolicy), reply)
	})
	t.Run("no proof, empty ones, long ones → refused, and the third ends it", func(t *testing.T) {
		c, _ := rawTLS(t, address, nil)
		assert.Equal(t, uint32(errPolicy), goTo(c, "vol"))
		for _, proof := range []string{"", "short", strings.Repeat("long", 1000)} {
			reply, _ := c.option(optAuthTLS, proof)
			assert.Equal(t, uint32(errPolicy), reply)
		}
		c.expectEnd()
	})
	t.Run("the proof that is not bound → refused over TLS", func(t *testing.T) {
		c, _ := rawTLS(t, address, nil)
		reply, _ := c.option(optAuth, "")
		assert.Equal(t, uint32(errInvalid), reply)
	})
	t.Run("what was proved before TLS → forgotten", func(t *testing.T) {
		c, _ := rawTLS(t, address, func(c *rawClient) {
			_, nonce := c.option(optAuth, "")
			reply, _ := c.option(optAuth, proofOf(string(secretNamed("vol")), nonce, "vol"))
			require.Equal(t, uint32(repAck), reply)
			require.Equal(t, uint32(errTLSReqd), goTo(c, "vol"), "opened over TLS alone")
		})
		assert.Equal(t, uint32(errPolicy), goTo(c, "vol"))
	})
	t.Run("TLS within TLS, with data, and the bound proof without TLS → refused", func(t *testing.T) {
		c, _ := rawTLS(t, address, func(c *rawClient) {
			reply, _ := c.option(optStartTLS, "data")
			assert.Equal(t, uint32(errInvalid), reply)
			reply, _ = c.option(optAuthTLS, strings.Repeat("x", 32))
			assert.Equal(t, uint32(errTLSReqd), reply)
		})
		reply, _ := c.option(optStartTLS, "")
		assert.Equal(t, uint32(errInvalid), reply)
	})
	assert.Len(t, x.opens(), 1)
}

func TestFailedHandshakes(t *testing.T) {
	opts := securing(true, "vol")
	opts.HandshakeTimeout = 300 * time.Millisecond
	x := serving(memory.New(1 << 20).Export("vol"))
	address := listenTCP(t, x, opts)
	for _, c := range []struct{ name, after string }{
		{"a client that falls silent", ""},
		{"garbage", strings.Repeat("garbage ", 100)},
		{"an option where TLS begins", "IHAVEOPT" + u32(optGo) + u32(9) + u32(3) + "vol" + u16(0)},
		{"half a record", "\x16\x03\x01\x02\x00\x01"},
		{"a record too long", "\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000)},
	} {
		t.Run(c.name+" → the server ends it", func(t *testing.T) {
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			raw := &rawClient{t, conn}
			raw.read(18)
			raw.write("\x00\x00\x00\x03")
			reply, _ := raw.option(optStartTLS, "")
			require.Equal(t, uint32(repAck), reply)
			_, _ = io.WriteString(conn, c.after) // it may close the connection before the end of this
			_, err = io.Copy(io.Discard, conn)
			assert.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server waits for ever")
		})
	}
	t.Run("bytes sent along with STARTTLS → ended, not taken for anything", func(t *testing.T) {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		raw := &rawClient{t, conn}
		raw.read(18)
		raw.write("\x00\x00\x00\x03IHAVEOPT" + u32(optStartTLS) + u32(0) + "IHAVEOPT" + u32(3) + u32(0))
		reply, _ := raw.optionReply(optStartTLS)
		require.Equal(t, uint32(repAck), reply)
		raw.expectEnd()
	})
	t.Run("a server that falls silent → the client gives up in time", func(t *testing.T) {
		silent := between(t, address, func(near, _ net.Conn) {
			_, _ = io.WriteString(near, "NBDMAGICIHAVEOPT\x00\x03")
			_, _ = io.CopyN(io.Discard, near, 20)
			_, _ = io.WriteString(near, "\x00\x03\xe8\x89\x04\x55\x65\xa9"+u32(optStartTLS)+u32(repAck)+u32(0))
			_, _ = io.Copy(io.Discard, near)
		})
		_, err := nbd.Dial(within(t), "tcp", silent, "vol", nbd.DialOptions{Secret: secretNamed("vol"), TLS: true, Timeout: 200 * time.Millisecond})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
	assert.Empty(t, x.opens())
}

// TestABitThatIsChangedOnTheWayEndsTheConnection checks that a changed record is not accepted, in either direction.
func TestABitThatIsChangedOnTheWayEndsTheConnection(t *testing.T) {
	for _, toServer := range []bool{true, false} {
		t.Run(fmt.Sprintf("towards the server: %v", toServer), func(t *testing.T) {
			m := memory.New(1 << 20)
			address := listenTCP(t, serving(m.Export("vol")), securing(true, "vol"))
			var spoil sync.Mutex
			armed := false
			flip := func(here bool) func([]byte) {
				return func(p []byte) {
					spoil.Lock()
					defer spoil.Unlock()
					if armed && here && len(p) > 20 {
						p[len(p)/2] ^= 4
					}
				}
			}
			address = between(t, address, func(near, far net.Conn) { pass(near, far, flip(toServer), flip(!toServer)) })
			client, err := nbd.Dial(within(t), "tcp", address, "vol", nbd.DialOptions{Secret: secretNamed("vol"), TLS: true})
			require.NoError(t, err)
			defer client.Close()
			require.NoError(t, client.WriteAt(within(t), bytes.Repeat([]byte("a"), 4096), 0, false))
			spoil.Lock()
			armed = true
			spoil.Unlock()
			err = client.WriteAt(within(t), bytes.Repeat([]byte("b"), 4096), 0, false)
			assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
			got := make([]byte, 4096)
			require.NoError(t, m.ReadAt(within(t), got, 0))
			want := "a"
			if !toServer {
				want = "b"
			}
			assert.Equal(t, strings.Repeat(want, 4096), string(got), "all or nothing of a write")
		})
	}
}

// TestDataOverTLS writes and reads pieces of all sizes at once, so that frames share records and records share frames.
func TestDataOverTLS(t *testing.T) {
	const span, workers = 4 << 20, 8
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			m := memory.New(span * workers)
			var address string
			if network == "tcp" {
				address = listenTCP(t, serving(m.Export("vol")), securing(true, "vol"))
			} else {
				_, address = listen(t, serving(m.Export("vol")), securing(true, "vol"))
			}
			client, err := nbd.Dial(within(t), network, address, "vol", nbd.DialOptions{Secret: secretNamed("vol"), TLS: true})
			require.NoError(t, err)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					r := mathrand.New(mathrand.NewPCG(uint64(w), 1))
					want := make([]byte, span)
					for range 60 {
						n := 1 + r.IntN(1<<(1+r.IntN(21)))
						off := r.IntN(span - n + 1)
						for i := range n {
							want[off+i] = byte(r.Uint32())
						}
						if !assert.NoError(t, client.WriteAt(within(t), want[off:off+n], int64(w*span+off), false)) {
							return
						}
						n = 1 + r.IntN(1<<(1+r.IntN(21)))
						off = r.IntN(span - n + 1)
						got := make([]byte, n)
						if !assert.NoError(t, client.ReadAt(within(t), got, int64(w*span+off))) || !assert.True(t, bytes.Equal(want[off:off+n], got), "other data") {
							return
						}
					}
				})
			}
			all.Wait()
			require.NoError(t, client.Close())
		})
	}
}

// TestNoWriterOverTLSWaitsForAPeer checks that a peer which takes nothing delays no sender, and that its own calls fail
// when the connection is cut.
func TestNoWriterOverTLSWaitsForAPeer(t *testing.T) {
	release := make(chan struct{})
	address := listenTCP(t, serving(memory.New(64<<20).Export("vol")), securing(true, "vol"))
	stalled := make(chan struct{})
	address = between(t, address, func(near, far net.Conn) {
		stop := func([]byte) {
			select {
			case <-stalled:
				<-release
			default:
			}
		}
		pass(near, far, stop, func([]byte) {})
	})
	client, err := nbd.Dial(within(t), "tcp", address, "vol", nbd.DialOptions{Secret: secretNamed("vol"), TLS: true})
	require.NoError(t, err)
	close(stalled)
	const writes = 32
	outcome := make(chan error, writes)
	p := make([]byte, 1<<20)
	for i := range writes {
		client.WriteAsync(p, int64(i)<<20, false, func(err error) { outcome <- err }) // would wait here forever
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	assert.ErrorIs(t, client.WriteAt(ctx, p, 0, false), context.Canceled)
	client.Cut(errors.New("cut by the test"))
	unsent := 0
	for range writes {
		err := receive(t, outcome, "the outcome of a write")
		switch {
		case errors.Is(err, nbd.ErrNotSent):
			unsent++
		default:
			assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
		}
	}
	assert.Positive(t, unsent, "those that had not begun are known not to have happened")
	close(release)
	require.NoError(t, client.Close())
}
