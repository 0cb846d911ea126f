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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestRunNodeServesAndRegistersUntilItsContextEnds(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi") // short, because the length of a socket's path is limited
	require.NoError(t, err)
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
	require.NoError(t, err)
	assert.Equal(t, "CSIPlugin", info.Type)
	assert.Equal(t, testDriver, info.Name)
	assert.Equal(t, endpoint, info.Endpoint)
	_, err = kubelet.NotifyRegistrationStatus(call, &registration.RegistrationStatus{PluginRegistered: false, Error: "later"})
	assert.NoError(t, err, "a failed registration")
	node, err := csipb.NewNodeClient(dial(t, info.Endpoint)).NodeGetInfo(call, &csipb.NodeGetInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, "n1", node.NodeId)
	assert.Equal(t, os.FileMode(0o600), statMode(t, endpoint).Perm())
	cancel()
	assert.NoError(t, <-done)
	for _, path := range []string{endpoint, registry} {
		_, err := os.Lstat(path)
		assert.ErrorIs(t, err, os.ErrNotExist, "%s is left", path)
	}
}

// The running plugin sets the identifier of the node's NFS client before it mounts a share. The mount itself fails:
// this node has no network.
func TestRunNodeSetsTheIdentifierBeforeItMountsAShare(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &idNode{root: filepath.Join(dir, "1/root")}
	n.write(t, kernelsIdentifier, "(null)\n")
	n.write(t, filepath.Join(types.NFSClientDirectory, types.NFSClientWanted), "ours")
	endpoint := filepath.Join(dir, "csi.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- RunNode(ctx, NodeOptions{NodeID: "n1", Endpoint: "unix://" + endpoint, KubeletDir: dir, HostProc: dir, Log: quiet()})
	}()
	call, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	_, err = csipb.NewNodeClient(dial(t, endpoint)).NodeStageVolume(call, &csipb.NodeStageVolumeRequest{
		VolumeId: "pvc-1", StagingTargetPath: filepath.Join(dir, "staging"), VolumeCapability: capabilityOf(multiNode, "ext4"),
		PublishContext: map[string]string{"shareEndpoint": "nfs://192.0.2.1/pvc-1"},
	}, grpc.WaitForReady(true))
	assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	assert.Equal(t, "ours", n.kernels(t))
	assert.Equal(t, "ours", n.read(t, filepath.Join(types.NFSClientDirectory, types.NFSClientHeld)))
	cancel()
	assert.NoError(t, <-done)
}

func leaveStaleSocket(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

func statMode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Mode()
}

func TestSocketPath(t *testing.T) {
	for endpoint, want := range map[string]string{"unix:///csi/csi.sock": "/csi/csi.sock", "/csi/csi.sock": "/csi/csi.sock", "unix://csi.sock": "", "tcp://host:1": ""} {
		got, err := socketPath(endpoint)
		assert.Equal(t, want, got, "%s, %v", endpoint, err)
		assert.Equal(t, want == "", err != nil)
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
	require.NoError(t, err)
	assert.Equal(t, "NodeStageVolume", entry.Data["method"], "logged %s", text)
	assert.Equal(t, codes.Aborted.String(), entry.Data["code"])
	assert.Equal(t, "pvc-1", entry.Data["volume"])
	for _, secret := range []string{"hush", "key"} {
		assert.False(t, containsValue(entry.Data, secret), "a secret was logged: %s", text)
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
		assert.Equal(t, c.want, response.Code, c.name)
	}
}
