package app

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A process whose manifest sets these values keeps them.
func TestClientsPingWithinTenSecondsUnlessTheEnvironmentSaysOtherwise(t *testing.T) {
	tests := map[string]struct {
		idle, answer         string // in the environment; "" means not set
		wantIdle, wantAnswer string
	}{
		"neither is set → ours":                {"", "", "5", "5"},
		"both are set → they stay":             {"30", "15", "30", "15"},
		"pings are turned off → they stay off": {"0", "", "0", "5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", tt.idle)
			t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", tt.answer)
			_, err := newClients(t.Context(), writeKubeconfig(t, "http://127.0.0.1:1", nil), logrus.NewEntry(logrus.New()))
			require.NoError(t, err)
			assert.Equal(t, tt.wantIdle, os.Getenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS"))
			assert.Equal(t, tt.wantAnswer, os.Getenv("HTTP2_PING_TIMEOUT_SECONDS"))
		})
	}
}

// An API server that lost its power does not send any packets, not even one that closes or resets the connection. With
// client-go's own values the watch would last for 45 s. So this test fails if client-go reads other variables, or if
// its transport does not use HTTP/2.
func TestAWatchEndsWhenTheServerStopsAnswering(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	over := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-over
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	link := newLink(t, server.Listener.Addr().String())
	c, err := newClients(t.Context(), writeKubeconfig(t, "https://"+link.address, server), logrus.NewEntry(logrus.New()))
	require.NoError(t, err)
	watch, err := c.kube.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()

	link.cut.Store(true)
	select {
	case <-watch.ResultChan(): // an error, or the channel is closed
	case <-time.After(30 * time.Second):
		t.Fatal("the watch continues although its server is silent")
	}
}

// writeKubeconfig writes a kubeconfig for a server; tls is the server whose certificate is trusted, if any.
func writeKubeconfig(t *testing.T, url string, tls *httptest.Server) string {
	t.Helper()
	authority := ""
	if tls != nil {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})
		authority = ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(text)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: %q%s}}], "+
		"contexts: [{name: x, context: {cluster: x}}]}", url, authority)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// link passes on connections until it is cut: then they stay open, and nothing is transmitted.
type link struct {
	address string
	cut     atomic.Bool
}

func newLink(t *testing.T, server string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	l := &link{address: listener.Addr().String()}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				_ = near.Close()
				return
			}
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			go l.pass(near, far)
			go l.pass(far, near)
		}
	}()
	return l
}

func (l *link) pass(from, to net.Conn) {
	text := make([]byte, 32<<10)
	for {
		n, err := from.Read(text)
		if err != nil {
			return
		}
		if l.cut.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, err = to.Write(text[:n]); err != nil {
			return
		}
	}
}
