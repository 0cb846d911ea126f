package instance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// tool runs an external program. It may be missing on a developer's machine, but never if CI=true.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

func fileHash(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// External tools write a volume, read it, and read its replicas.
func TestToolsOfOthersReadAndWriteVolumesAndReplicas(t *testing.T) {
	c := newCluster(t)
	home := c[0]
	c.startEngine(home, c.engineSpec(1, nil))
	uri := func(n *node, export string) string {
		return "nbd+unix:///" + export + "?socket=" + n.toolSocket()
	}
	image := filepath.Join(t.TempDir(), "image")
	out := filepath.Join(t.TempDir(), "out")
	content := make([]byte, testSize)
	for i := 5 * mib; i < 9*mib; i++ {
		content[i] = byte(i * 7 >> 3)
	}
	require.NoError(t, os.WriteFile(image, content, 0o600))
	want := fileHash(t, image)
	volumeURI := uri(home, "engine/"+volume)

	info := tool(t, "nbdinfo", volumeURI)
	assert.Contains(t, info, "export-size: 67108864")
	assert.Contains(t, info, "is_read_only: false", "nbdinfo of the volume")
	tool(t, "nbdcopy", "--flush", image, volumeURI)
	tool(t, "nbdcopy", volumeURI, out)
	got := fileHash(t, out)
	assert.Equal(t, want, got, "nbdcopy read %s from the volume", got)
	tool(t, "qemu-io", "-f", "raw", "-c", "write -P 0xab 40M 1M", "-c", "flush", "-c", "read -P 0xab 40M 1M", "-c", "discard 40M 1M",
		"-c", "read -P 0 40M 1M", volumeURI)
	home.stopEngine()

	for _, n := range c {
		replicaURI := uri(n, "ro/"+n.replicaName())
		assert.Contains(t, tool(t, "nbdinfo", replicaURI), "is_read_only: true", "nbdinfo of a replica")
		sparse := tool(t, "nbdinfo", "--map", replicaURI)
		assert.Contains(t, sparse, "hole,zero")
		assert.Contains(t, sparse, "data", "nbdinfo --map of a replica")
		tool(t, "qemu-img", "convert", "-f", "raw", "-O", "raw", replicaURI, out)
		got := fileHash(t, out)
		assert.Equal(t, want, got, "qemu-img read %s from replica %d", got, n.number)
		tool(t, "nbdcopy", replicaURI, out)
		got = fileHash(t, out)
		assert.Equal(t, want, got, "nbdcopy read %s from replica %d", got, n.number)
	}
	assert.Contains(t, tool(t, "nbdinfo", "--list", "nbd+unix:///?socket="+home.toolSocket()), "ro/vol-r-1", "nbdinfo --list")
}

// The test covers the whole path of a pod's write: device, engine, three replicas.
func TestAVolumeIsABlockDevice(t *testing.T) {
	if _, err := os.Stat("/dev/loop-control"); os.Getuid() != 0 || err != nil {
		t.Skip("block devices need root and loop devices")
	}
	c := newCluster(t)
	home := c[1]
	spec := c.engineSpec(1, nil)
	spec.Frontend = proto.Frontend_FRONTEND_BLOCK
	c.startEngine(home, spec)
	device := home.untilEngine(proto.Phase_PHASE_RUNNING).GetEndpoint()
	require.Equal(t, filepath.Join(home.root, "dev", volume), device)
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	require.NoError(t, err)
	content := bytes.Repeat([]byte("longhorn"), mib/8)
	_, err = f.WriteAt(content, 17*mib)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	_, err = home.EngineStop(t.Context(), &proto.EngineRef{Name: spec.GetName()})
	assert.Equal(t, reasonInUse, reason(err), "stop of a volume whose device is open: %v", err)
	tool, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	assert.Error(t, tool.WriteAt(t.Context(), content, 0, false), "a tool wrote to a volume that has a device")
	require.NoError(t, f.Close())
	home.stopEngine()
	<-tool.Done() // a reader does not delay the volume
	_ = tool.Close()
	_, err = os.Lstat(device)
	assert.ErrorIs(t, err, os.ErrNotExist, "the device is left")
	whole := make([]byte, testSize)
	copy(whole[17*mib:], content)
	sum := sha256.Sum256(whole)
	for _, n := range c {
		got := n.replicaHash()
		assert.Equal(t, hex.EncodeToString(sum[:]), got, "replica %d", n.number)
	}
}
