package csi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestRunNodeServesAndRegistersUntilItsContextEnds(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi") // short, for a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// An earlier process left both of its sockets.
	endpoint := filepath.Join(dir, "plugins", testDriver, "csi.sock")
	registry := filepath.Join(dir, "plugins_registry", testDriver+"-reg.sock")
	for _, path := range []string{endpoint, registry} {
		leaveStaleSocket(t, path)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- RunNode(ctx, NodeOptions{
			NodeID: "n1", Endpoint: "unix://" + endpoint, KubeletDir: dir, Version: "v1", HealthAddress: "127.0.0.1:0", Log: quiet(),
		})
	}()
	call, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	kubelet := registration.NewRegistrationClient(dial(t, registry))
	info, err := kubelet.GetInfo(call, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if info.Type != "CSIPlugin" || info.Name != testDriver || info.Endpoint != endpoint {
		t.Errorf("registration %v", info)
	}
	if _, err := kubelet.NotifyRegistrationStatus(call, &registration.RegistrationStatus{PluginRegistered: false, Error: "later"}); err != nil {
		t.Errorf("a failed registration: %v", err)
	}
	node, err := csipb.NewNodeClient(dial(t, info.Endpoint)).NodeGetInfo(call, &csipb.NodeGetInfoRequest{})
	if err != nil || node.NodeId != "n1" {
		t.Errorf("node info %v, %v", node, err)
	}
	if mode := statMode(t, endpoint).Perm(); mode != 0o600 {
		t.Errorf("the socket has mode %o, want 600", mode)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("RunNode: %v", err)
	}
	for _, path := range []string{endpoint, registry} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

func leaveStaleSocket(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func statMode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(t.Context(), file); err == nil {
		t.Error("a plain file was taken for a stale socket")
	}
	path := filepath.Join(dir, "s.sock")
	first, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := listenUnix(t.Context(), path) // a successor takes the path over
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("closing the first removed the second's socket: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("closing the second left its socket: %v", err)
	}
}

func TestSocketPath(t *testing.T) {
	for endpoint, want := range map[string]string{"unix:///csi/csi.sock": "/csi/csi.sock", "/csi/csi.sock": "/csi/csi.sock", "unix://csi.sock": "", "tcp://host:1": ""} {
		got, err := socketPath(endpoint)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: got %q, %v, want %q", endpoint, got, err, want)
		}
	}
}

func TestCallsAreLoggedWithoutSecrets(t *testing.T) {
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	intercept := logCalls(logrus.NewEntry(logger))
	req := &csipb.NodeStageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: "/staging", Secrets: map[string]string{"key": "hush"}}
	_, _ = intercept(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodeStageVolume"}, func(context.Context, any) (any, error) {
		return nil, busy("pvc-1")
	})
	entry := hook.LastEntry()
	text, err := entry.String()
	if err != nil {
		t.Fatal(err)
	}
	if entry.Data["method"] != "NodeStageVolume" || entry.Data["code"] != codes.Aborted.String() || entry.Data["volume"] != "pvc-1" {
		t.Errorf("logged %s", text)
	}
	for _, secret := range []string{"hush", "key"} {
		if containsValue(entry.Data, secret) {
			t.Errorf("a secret was logged: %s", text)
		}
	}
}

func containsValue(fields logrus.Fields, value string) bool {
	for _, v := range fields {
		if v == value {
			return true
		}
	}
	return false
}

type brokenIdentity struct{ csipb.IdentityClient }

func (brokenIdentity) Probe(context.Context, *csipb.ProbeRequest, ...grpc.CallOption) (*csipb.ProbeResponse, error) {
	return nil, errors.New("no answer")
}

func TestHealthFollowsTheSocket(t *testing.T) {
	path := serveForTest(t, "csi.sock", func(s *grpc.Server) { csipb.RegisterIdentityServer(s, &identity{driver: testDriver}) })
	for _, c := range []struct {
		name   string
		client csipb.IdentityClient
		want   int
	}{
		{"a server that answers is healthy", csipb.NewIdentityClient(dial(t, path)), http.StatusOK},
		{"one that does not is not", brokenIdentity{}, http.StatusServiceUnavailable},
	} {
		response := httptest.NewRecorder()
		healthHandler(c.client).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if response.Code != c.want {
			t.Errorf("%s: %d, want %d", c.name, response.Code, c.want)
		}
	}
}
