package nbd

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// fuzzTimeout limits the time of one input; a passing test does not wait for it.
const fuzzTimeout = time.Minute

// FuzzServerTLS plays a client that has completed the TLS handshake and then sends arbitrary bytes.
func FuzzServerTLS(f *testing.F) {
	open := appendOption(nil, optGo, goOption{Name: "zero"}.encode())
	f.Add([]byte{}, false)
	f.Add(appendOption(nil, optAuthTLS, make([]byte, proofLen)), false)
	f.Add(append(appendOption(nil, optAuth, nil), open...), true)
	f.Add(append(appendOption(nil, optStartTLS, nil), open...), true)
	f.Add(append(open, serverScript(nil, request{Type: cmdRead, Length: 512}, request{Type: cmdWrite, Length: 8})[4:]...), true)
	secret := []byte("a secret that the input does not know")
	f.Fuzz(func(t *testing.T, in []byte, prove bool) {
		s := NewServer(zeroExporter{}, ServerOptions{
			Secret:  func(string) ([]byte, bool) { return secret, true },
			Secrets: func() [][]byte { return [][]byte{secret} },
		})
		near, far := net.Pipe()
		_ = near.SetDeadline(time.Now().Add(fuzzTimeout))
		var serving sync.WaitGroup
		serving.Go(func() { s.ServeConn(far) })
		h := &clientHandshake{conn: near, in: bufio.NewReader(near), name: "zero", secret: secret, tls: true}
		if _, err := io.CopyN(io.Discard, h.in, 18); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Write(be.AppendUint32(nil, uint32(flagFixedNewstyle|flagNoZeroes))); err != nil {
			t.Fatal(err)
		}
		begin := h.secure
		if !prove {
			begin = h.beginTLS
		}
		if err := begin(); err != nil {
			t.Fatal(err)
		}
		var answers sync.WaitGroup
		var got []byte
		answers.Go(func() { got, _ = io.ReadAll(h.conn) })
		_, _ = h.conn.Write(in)                                         // the server may have hung up
		_ = near.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // the server may wait for more
		answers.Wait()
		_ = near.Close()
		serving.Wait()
		if !prove && bytes.Contains(got, exportInfo{Size: 1 << 30, Flags: txHasFlags}.encode()[:10]) {
			t.Error("an export was opened without a proof")
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// FuzzClientTLS plays a server that has completed the TLS handshake and then sends arbitrary bytes. Without the secret
// the client never accepts it.
func FuzzClientTLS(f *testing.F) {
	proof := appendOptionReply(nil, optAuthTLS, repAuthProof, make([]byte, proofLen))
	f.Add(append(appendOptionReply(proof, optAuthTLS, repAck, nil), clientScript()[18:]...))
	f.Add(appendOptionReply(nil, optAuthTLS, repAck, nil))
	f.Add(appendOptionReply(nil, optAuthTLS, repErrPolicy, []byte("no")))
	config, err := newServerTLS()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		near, far := net.Pipe()
		_ = near.SetDeadline(time.Now().Add(fuzzTimeout))
		_ = far.SetDeadline(time.Now().Add(fuzzTimeout))
		var serving sync.WaitGroup
		serving.Go(func() {
			defer far.Close()
			_, _ = far.Write(clientScript()[:18])
			_, _ = io.CopyN(io.Discard, far, 4+optionLen)
			_, _ = far.Write(appendOptionReply(nil, optStartTLS, repAck, nil))
			secure := tls.Server(far, config)
			if secure.Handshake() != nil {
				return
			}
			serving.Go(func() { _, _ = io.Copy(io.Discard, secure) })
			_, _ = secure.Write(in)
		})
		h := &clientHandshake{conn: near, in: bufio.NewReader(near), name: "x", secret: []byte("secret"), tls: true}
		if err := h.run(); err == nil {
			t.Error("an impostor was believed")
		}
		_ = near.Close()
		serving.Wait()
	})
}

// FuzzVerifyChannel checks that no input is accepted as a proof, except the only valid proof.
func FuzzVerifyChannel(f *testing.F) {
	f.Add([]byte("proof"), []byte("binding"))
	f.Fuzz(func(t *testing.T, proof, binding []byte) {
		a := authenticator{secrets: func() [][]byte { return [][]byte{nil, {}, []byte("one"), []byte("two")} }, binding: binding}
		got := a.verifyChannel(proof)
		one, two := channelProof([]byte("one"), binding, clientEnd), channelProof([]byte("two"), binding, clientEnd)
		if right := hmac.Equal(proof, one) || hmac.Equal(proof, two); right != (got != nil) {
			t.Errorf("proof % x: %v", proof, got != nil)
		}
		for _, right := range [][]byte{one, two} {
			if a.verifyChannel(right) == nil {
				t.Error("a right proof was refused")
			}
		}
	})
}
