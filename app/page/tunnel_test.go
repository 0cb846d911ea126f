package page

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// echo is an API server without WebSockets. It forwards the port of pod "pod" to a server that echoes its input.
func echo(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/api/v1/namespaces/"+types.Namespace+"/pods/pod/portforward":
			http.Error(w, `pods "other" is forbidden`, http.StatusForbidden)
			return
		case r.Method == http.MethodGet: // a WebSocket
			http.Error(w, "no WebSockets here", http.StatusBadRequest)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			t.Error(err)
			return
		}
		streams := make(chan httpstream.Stream, 10)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if conn == nil {
			t.Error("the connection is not upgraded")
			return
		}
		defer conn.Close()
		for {
			select {
			case s := <-streams:
				if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
					_ = s.Close()
					continue
				}
				assert.Equal(t, strconv.Itoa(types.APIPort), s.Headers().Get(corev1.PortHeader))
				go func() {
					_, _ = io.Copy(s, s)
					_ = s.Close()
				}()
			case <-conn.CloseChan():
				return
			}
		}
	})
}

func TestAPortOfThisMachineLeadsToThePod(t *testing.T) {
	server := httptest.NewServer(echo(t))
	defer server.Close()
	config := &rest.Config{Host: server.URL, Timeout: time.Minute}
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tunnel := NewTunnel(kube, config, types.Namespace)
	served := false
	err = tunnel(ctx, "pod", 0, func(port int) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", loopback, port))
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "hello")
		require.NoError(t, err)
		answer := make([]byte, 5)
		_, err = io.ReadFull(conn, answer)
		assert.NoError(t, err)
		served = string(answer) == "hello"
		cancel()
	})
	assert.NoError(t, err)
	assert.True(t, served)
	assert.ErrorContains(t, tunnel(t.Context(), "other", 0, func(int) { t.Error("it is ready") }), `pods "other" is forbidden`)
}

// TestThePortIsOpenOnTheLoopbackInterfaceOnly tries other addresses of this machine. All addresses of 127.0.0.0/8 belong
// to the loopback interface, so a server that listens on all interfaces would answer there.
func TestThePortIsOpenOnTheLoopbackInterfaceOnly(t *testing.T) {
	server := httptest.NewServer(echo(t))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, NewTunnel(kube, config, types.Namespace)(ctx, "pod", 0, func(port int) {
		for address, open := range map[string]bool{loopback: true, "127.0.0.2": false, "::1": false} {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
			assert.Equal(t, open, err == nil, "%s: %v", address, err)
			if err == nil {
				_ = conn.Close()
			}
		}
		cancel()
	}))
}
