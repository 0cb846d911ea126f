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

	"github.com/longhorn-lep/longhorn-manager/instance/proto"
)

// tool runs a program of others. It may be missing on a developer's machine, never where CI=true.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func fileHash(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// Tools of others write a volume, read it, and read its replicas.
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
	must(t, os.WriteFile(image, content, 0o600))
	want := fileHash(t, image)
	volumeURI := uri(home, "engine/"+volume)

	if info := tool(t, "nbdinfo", volumeURI); !strings.Contains(info, "export-size: 67108864") || !strings.Contains(info, "is_read_only: false") {
		t.Errorf("nbdinfo of the volume:\n%s", info)
	}
	tool(t, "nbdcopy", "--flush", image, volumeURI)
	tool(t, "nbdcopy", volumeURI, out)
	if got := fileHash(t, out); got != want {
		t.Errorf("nbdcopy read %s from the volume, want %s", got, want)
	}
	tool(t, "qemu-io", "-f", "raw", "-c", "write -P 0xab 40M 1M", "-c", "flush", "-c", "read -P 0xab 40M 1M", "-c", "discard 40M 1M",
		"-c", "read -P 0 40M 1M", volumeURI)
	home.stopEngine()

	for _, n := range c {
		replicaURI := uri(n, "ro/"+n.replicaName())
		if info := tool(t, "nbdinfo", replicaURI); !strings.Contains(info, "is_read_only: true") {
			t.Errorf("nbdinfo of a replica:\n%s", info)
		}
		if sparse := tool(t, "nbdinfo", "--map", replicaURI); !strings.Contains(sparse, "hole,zero") || !strings.Contains(sparse, "data") {
			t.Errorf("nbdinfo --map of a replica:\n%s", sparse)
		}
		tool(t, "qemu-img", "convert", "-f", "raw", "-O", "raw", replicaURI, out)
		if got := fileHash(t, out); got != want {
			t.Errorf("qemu-img read %s from replica %d, want %s", got, n.number, want)
		}
		tool(t, "nbdcopy", replicaURI, out)
		if got := fileHash(t, out); got != want {
			t.Errorf("nbdcopy read %s from replica %d, want %s", got, n.number, want)
		}
	}
	if list := tool(t, "nbdinfo", "--list", "nbd+unix:///?socket="+home.toolSocket()); !strings.Contains(list, "ro/vol-r-1") {
		t.Errorf("nbdinfo --list:\n%s", list)
	}
}

// The whole way of a pod's write: device, engine, three replicas.
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
	if want := filepath.Join(home.root, "dev", volume); device != want {
		t.Fatalf("device %q, want %q", device, want)
	}
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	must(t, err)
	content := bytes.Repeat([]byte("longhorn"), mib/8)
	_, err = f.WriteAt(content, 17*mib)
	must(t, err)
	must(t, f.Sync())
	if _, err := home.EngineStop(t.Context(), &proto.EngineRef{Name: spec.GetName()}); reason(err) != reasonInUse {
		t.Errorf("stop of a volume whose device is open: %v", err)
	}
	tool, err := home.dialTool("engine/" + volume)
	must(t, err)
	if err := tool.WriteAt(t.Context(), content, 0, false); err == nil {
		t.Error("a tool wrote to a volume that has a device")
	}
	must(t, f.Close())
	home.stopEngine()
	<-tool.Done() // a reader does not hold the volume up
	_ = tool.Close()
	if _, err := os.Lstat(device); !os.IsNotExist(err) {
		t.Errorf("the device is left: %v", err)
	}
	whole := make([]byte, testSize)
	copy(whole[17*mib:], content)
	sum := sha256.Sum256(whole)
	for _, n := range c {
		if got := n.replicaHash(); got != hex.EncodeToString(sum[:]) {
			t.Errorf("replica %d has %s", n.number, got)
		}
	}
}
