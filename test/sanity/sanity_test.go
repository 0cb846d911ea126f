// Package sanity runs the published conformance tests of CSI drivers against a driver that is installed on a cluster.
// It uses the sockets of the driver's node plugin and of its controller, real volumes, real devices and real mounts.
// "go test -c" compiles it. The program is run on a node as root, in the node's own mount namespace:
//
//	sanity.test -test.v -controller /var/lib/kubelet/pods/…/csi.sock
//
//	sanity.test ──► controller's socket: identity, controller ──► REST API ──► volumes
//	          └───► node's socket: identity, node ──► devices and mounts of this node
//
// It must not know how the driver works. It gets only the sockets and the StorageClass parameters.
package sanity

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/longhorn-lep/longhorn-manager/types"
)

var (
	controllerSocket = flag.String("controller", "", "path of the controller's socket, as this node's files show it; without it nothing is tested")
	nodeSocket       = flag.String("node", "/var/lib/kubelet/plugins/"+types.DriverName+"/csi.sock", "path of the node plugin's socket")
	replicas         = flag.String("replicas", "2", "numberOfReplicas of the volumes that are made")
	directory        = flag.String("directory", "/var/lib/kubelet/plugins/"+types.DriverName, "where mounts are made; the node plugin must see it at the same path")
)

// volumeSize in bytes is small, because every test creates a volume or two.
const volumeSize = 64 << 20

// TestDriver runs the whole suite. The suite skips the features that a driver does not advertise. A test that fails
// leaves its volumes behind, as the suite says in its log.
func TestDriver(t *testing.T) {
	if *controllerSocket == "" {
		t.Skip("runs on a node of a cluster with the driver installed: give -controller")
	}
	work, err := os.MkdirTemp(*directory, "sanity-")
	require.NoError(t, err)
	t.Cleanup(func() {
		// This removes only the empty directory: directories that are still mounted below it must not be emptied.
		assert.NoError(t, os.Remove(work), "the suite left something behind")
	})
	config := sanity.NewTestConfig()
	config.Address = "unix://" + short(t, *nodeSocket)
	config.ControllerAddress = "unix://" + short(t, *controllerSocket)
	config.TargetPath = filepath.Join(work, "target")
	config.StagingPath = filepath.Join(work, "staging")
	config.TestVolumeSize = volumeSize
	config.TestVolumeParameters = map[string]string{"numberOfReplicas": *replicas}
	config.TestSnapshotParameters = map[string]string{"type": "snap"}
	config.IdempotentCount = 3
	// The manager does not create volumes from snapshots. The suite expects that from each driver with snapshots.
	require.NoError(t, flag.Set("ginkgo.skip", "should create volume from an existing source snapshot"))
	wantDriver(t, config.Address)
	wantDriver(t, config.ControllerAddress)
	sanity.Test(t, config)
	wantNoMounts(t, work)
}

// short returns a link to a socket. The socket's own path may be longer than the 107 bytes that the address of a socket
// can have: the paths of a pod's volumes are nearly that long.
func short(t *testing.T, socket string) string {
	t.Helper()
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket, info.Mode().Type(), "%s is not a socket", socket)
	directory, err := os.MkdirTemp("", "csi-")
	require.NoError(t, err)
	link := filepath.Join(directory, "s")
	t.Cleanup(func() { _ = os.RemoveAll(directory) }) // it contains only the link
	require.NoError(t, os.Symlink(socket, link))
	return link
}

// wantDriver checks that our driver answers, before the suite creates volumes and unmounts file systems.
func wantDriver(t *testing.T, address string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // no call is in progress
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	info, err := csipb.NewIdentityClient(conn).GetPluginInfo(ctx, &csipb.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err, "asking %s who it is", address)
	require.Equal(t, types.DriverName, info.GetName(), address)
}

// wantNoMounts fails the test if anything below a directory is still mounted.
func wantNoMounts(t *testing.T, directory string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		assert.False(t, len(fields) > 1 && strings.HasPrefix(fields[1], directory+"/"), "still mounted: %s", strings.TrimSpace(line))
	}
}
