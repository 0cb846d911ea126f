package csi

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// attachingService makes the device appear on the host when a volume is attached.
type attachingService struct {
	*fakeService
	host *host
}

func (a *attachingService) Attach(ctx context.Context, volume string, t Ticket) error {
	a.host.attach(volume, 7)
	return a.fakeService.Attach(ctx, volume, t)
}

// Expand grows the device, too.
func (a *attachingService) Expand(ctx context.Context, volume string, size int64) error {
	a.host.mu.Lock()
	a.host.sizes[a.host.device(volume)] = size
	a.host.mu.Unlock()
	return a.fakeService.Expand(ctx, volume, size)
}

// serveForTest serves on a new unix socket and returns its path. At the end of the test it waits for the server.
func serveForTest(t *testing.T, name string, register func(*grpc.Server)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	l, err := listenUnix(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { return serve(ctx, l, quiet(), register) })
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, group.Wait())
	})
	return path
}

// TestSanity runs the published conformance tests of CSI drivers over a unix socket. The fake manager also creates
// volumes from snapshots and from other volumes.
func TestSanity(t *testing.T) {
	h := newHost(t)
	f := newFakeService("n1")
	f.instant = true
	core := coreOver(f)
	core.clones = true
	core.volumes, core.poll, core.wait = &attachingService{fakeService: f, host: h}, 5*time.Millisecond, time.Second
	path := serveForTest(t, "csi.sock", func(s *grpc.Server) {
		csipb.RegisterIdentityServer(s, &identity{driver: testDriver, version: "test"})
		csipb.RegisterControllerServer(s, &controllerServer{core: core})
		csipb.RegisterNodeServer(s, h.server())
	})
	config := sanity.NewTestConfig()
	config.Address = "unix://" + path
	config.TargetPath = h.path("sanity-target")
	config.StagingPath = h.path("sanity-staging")
	config.TestVolumeSize = 64 << 20
	config.TestSnapshotParameters = map[string]string{"type": "snap"}
	config.IdempotentCount = 3
	sanity.Test(t, config)
	assert.Empty(t, f.volumes, "volumes left")
	assert.Empty(t, f.snapshots, "snapshots left")
	assert.Empty(t, h.mounts(), "left mounted")
}
