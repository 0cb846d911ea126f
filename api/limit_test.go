package api

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestRatesAreBoundedByAddress: endless requests of one address do not delay the requests of another.
func TestRatesAreBoundedByAddress(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	h := Limited(Limits{Requests: 10, PerSecond: 2, Burst: 3}, c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	from := func(address, path string) int {
		r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader("x"))
		r.RemoteAddr = address
		r.Header.Set("X-Forwarded-For", "192.0.2.99")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusTooManyRequests {
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
			assert.Contains(t, w.Body.String(), "too many requests from this address: at most 2 per second are allowed")
		}
		return w.Code
	}
	for range 3 {
		assert.Equal(t, 200, from("192.0.2.1:1000", "/v1"))
	}
	assert.Equal(t, 429, from("192.0.2.1:1001", "/v1"), "another port is the same address")
	assert.Equal(t, 200, from("192.0.2.1:1001", "/healthz"))
	assert.Equal(t, 200, from("192.0.2.2:1000", "/v1"))
	c.SetTime(c.Now().Add(500 * time.Millisecond))
	assert.Equal(t, 200, from("192.0.2.1:1002", "/v1"), "half a second gives one request")
	assert.Equal(t, 429, from("192.0.2.1:1002", "/v1"))
}

// TestTheQuotaIsBounded: requests occupy no slots of streams, and streams none of requests. Each address leaves slots
// for others.
func TestTheQuotaIsBounded(t *testing.T) {
	for _, tc := range []struct{ name, path, other, what string }{
		{"requests", "/v1/volumes", "/v1/ws/volumes", "requests"},
		{"streams", "/v1/ws/volumes", "/v1/volumes", "streams"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			limits := Limits{Requests: 4, PerSecond: 1000, Burst: 1000, Streams: 4}
			h := Limited(limits, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					entered <- struct{}{}
					<-leave
				}
			}))
			from := func(address, method, path string) (int, string) {
				r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
				r.RemoteAddr = address + ":1000"
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code, w.Body.String()
			}
			var slow sync.WaitGroup
			begin := func(address string) {
				refused := make(chan struct{})
				slow.Go(func() {
					defer close(refused)
					from(address, "POST", tc.path)
				})
				select {
				case <-entered:
				case <-refused:
					t.Errorf("%s got no place", address)
				}
			}
			begin("192.0.2.1")
			status, text := from("192.0.2.1", "GET", tc.path)
			assert.Equal(t, 429, status)
			assert.Contains(t, text, "too many concurrent "+tc.what+" from this address")
			begin("192.0.2.2")
			begin("192.0.2.3")
			begin("192.0.2.4")
			status, text = from("192.0.2.5", "GET", tc.path)
			assert.Equal(t, 429, status)
			assert.Contains(t, text, "too many concurrent "+tc.what+": this daemon serves at most 4 at the same time")
			status, _ = from("192.0.2.1", "GET", tc.other)
			assert.Equal(t, 200, status, "the others are counted apart")
			status, _ = from("192.0.2.1", "GET", "/healthz")
			assert.Equal(t, 200, status)
			close(leave)
			slow.Wait()
			status, _ = from("192.0.2.1", "GET", tc.path)
			assert.Equal(t, 200, status, "there is room again")
		})
	}
}

// listening serves TLS and plain HTTP on one port until the test ends.
func listening(t *testing.T) (address string, listener *Listener) {
	t.Helper()
	certificate := httptest.NewTLSServer(nil)
	pair := certificate.TLS.Certificates[0]
	certificate.Close()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener = NewListener(inner, ServerTLS(func(context.Context) (*tls.Certificate, error) { return &pair, nil }))
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, map[bool]string{true: "TLS", false: "plain"}[r.TLS != nil])
		}))
	}()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-served)
	})
	return inner.Addr().String(), listener
}

func TestOnePortSpeaksTLSAndPlainHTTP(t *testing.T) {
	address, _ := listening(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the protocol is tested, not the peer
	defer transport.CloseIdleConnections()
	silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	for _, scheme := range []string{"http", "https", "http"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", scheme+"://"+address, nil)
		require.NoError(t, err)
		response, err := transport.RoundTrip(r)
		require.NoError(t, err, "a client that says nothing stops no other")
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, map[string]string{"http": "plain", "https": "TLS"}[scheme], string(text))
	}
}

// TestConnectionsOfOneAddressAreBounded: one connection too many is closed; after another connection has closed, a new
// one is accepted.
func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := NewListener(inner, nil)
	defer func() { assert.NoError(t, l.Close()) }()
	dial := func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write([]byte("G"))
		require.NoError(t, err)
		return conn
	}
	var accepted []net.Conn
	for range maxConnections / 4 {
		dial()
		conn, err := l.Accept()
		require.NoError(t, err)
		accepted = append(accepted, conn)
	}
	_, err = dial().Read(make([]byte, 1))
	require.Error(t, err, "one too many is closed")
	require.NoError(t, accepted[0].Close())
	dial()
	again, err := l.Accept()
	require.NoError(t, err)
	for _, conn := range append(accepted[1:], again) {
		require.NoError(t, conn.Close())
	}
}

// TestHeadersAndBodiesAreBounded: a header or body that is too long is refused with the reason.
func TestHeadersAndBodiesAreBounded(t *testing.T) {
	address, _ := listening(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", maxHeaderSize+8<<10))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)

	b := newBench(t)
	w := do(t, b.guarded(&accessOf{}, never), "POST", "/v1/volumes", strings.Repeat(" ", maxBody+1), "Authorization: Bearer admin")
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	b.ExpectWrites()
}
