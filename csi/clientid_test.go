package csi

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
	"github.com/longhorn-lep/longhorn-manager/util/nfsidentifier"
)

const kernelsIdentifier = "sys/fs/nfs/net/nfs_client/identifier"

// idNode is a node in a directory. Only load loads its kernel's client.
type idNode struct {
	root  string
	loads int
	used  bool
	// after is the content of the kernel's file when its client was loaded; "": the file does not exist.
	after string
}

func newIDNode(t *testing.T) *idNode { return &idNode{root: t.TempDir(), after: "(null)\n"} }

func (n *idNode) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(n.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func (n *idNode) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.root, name))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	return string(data)
}

func (n *idNode) want(t *testing.T, id string)  { t.Helper(); n.write(t, "run/wanted", id) }
func (n *idNode) kernels(t *testing.T) string   { t.Helper(); return n.read(t, kernelsIdentifier) }
func (n *idNode) held(t *testing.T) string      { t.Helper(); return n.read(t, "run/held") }
func (n *idNode) plugin(t *testing.T) *clientID { return n.patientPlugin(t, 0) }

func (n *idNode) patientPlugin(t *testing.T, patience time.Duration) *clientID {
	return &clientID{
		kernel: nfsidentifier.Kernel{Root: n.root}, dir: filepath.Join(n.root, "run"), timeout: patience, log: quiet(),
		isUsed: func() (bool, error) { return n.used, nil },
		load: func() error {
			n.loads++
			if n.after != "" && n.kernels(t) == "" {
				n.write(t, kernelsIdentifier, n.after)
			}
			return nil
		},
	}
}

func TestTheIdentifierIsSetBeforeTheFirstMount(t *testing.T) {
	n := newIDNode(t)
	n.want(t, "ours\n")
	plugin := n.plugin(t)
	plugin.beforeMount()
	assert.Equal(t, "ours", n.kernels(t))
	assert.Equal(t, "ours", n.held(t))
	n.used = true
	plugin.beforeMount()
	assert.Equal(t, "ours", n.held(t), "beside another share")
	assert.Equal(t, 1, n.loads, "the kernel's client is loaded once")
	n.want(t, "another") // the Node was created again
	plugin.beforeMount()
	assert.Equal(t, "ours", n.kernels(t), "it stays for the node's boot")
	assert.Equal(t, "ours", n.held(t))
}

func TestAnAdministratorsIdentifierStays(t *testing.T) {
	n := newIDNode(t)
	n.after = "theirs\n" // as if set when the module is loaded
	n.want(t, "ours")
	n.plugin(t).beforeMount()
	assert.Equal(t, "theirs\n", n.kernels(t))
	assert.Equal(t, "theirs", n.held(t))

	n = newIDNode(t)
	n.after = "theirs\n"
	n.plugin(t).beforeMount()
	assert.Equal(t, "theirs", n.held(t), "whatever the daemon says, and if it says nothing")
}

func TestAnUncertainIdentifierIsNotRecorded(t *testing.T) {
	for _, c := range []struct {
		name string
		// before is the held identifier; "-": none was recorded.
		before, kernel string
		used           bool
		held           string
	}{
		{"shares of an earlier release are mounted → not known", "-", "(null)\n", true, ""},
		{"none is mounted any more → known", "", "(null)\n", false, "ours"},
		{"it was not known, and others are mounted → not known", "", "ours\n", true, ""},
		{"it was changed beside mounted shares → not known", "ours", "theirs\n", true, ""},
		{"it was changed and nothing is mounted → the new one", "ours", "theirs\n", false, "theirs"},
		{"a name cannot be told apart by it → not known", "ours", "a/b\n", false, ""},
		{"a line feed is part of it → not known", "ours", "a\n\n", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newIDNode(t)
			n.want(t, "ours")
			n.used = c.used
			n.write(t, kernelsIdentifier, c.kernel)
			if c.before != "-" {
				n.write(t, "run/held", c.before)
			}
			n.plugin(t).beforeMount()
			assert.Equal(t, c.held, n.held(t))
			assert.FileExists(t, filepath.Join(n.root, "run/held"))
		})
	}
}

func TestAnUnreadableMountTableClearsTheRecordedIdentifier(t *testing.T) {
	n := newIDNode(t)
	n.want(t, "ours")
	plugin := n.plugin(t)
	plugin.isUsed = func() (bool, error) { return false, errors.New("boom") }
	plugin.beforeMount()
	assert.Equal(t, "ours", n.kernels(t))
	assert.Empty(t, n.held(t))
}

func TestAShareIsMountedWithoutTheIdentifierIfTheKernelHasNone(t *testing.T) {
	n := newIDNode(t)
	n.after = ""
	n.write(t, "run/held", "ours")
	n.want(t, "ours")
	n.plugin(t).beforeMount()
	assert.Empty(t, n.held(t))
	assert.Empty(t, n.kernels(t))

	n = newIDNode(t)
	plugin := n.plugin(t)
	plugin.load = func() error { return errors.New("no such module") }
	plugin.beforeMount()
	assert.Empty(t, n.held(t))
}

func TestADaemonOfAnEarlierReleaseIsAwaitedOnce(t *testing.T) {
	n := newIDNode(t)
	plugin := n.patientPlugin(t, time.Millisecond)
	plugin.beforeMount()
	assert.Equal(t, "(null)\n", n.kernels(t))
	assert.Empty(t, n.held(t))
	assert.True(t, plugin.waited)

	n.want(t, "") // nor of a daemon that names no valid identifier
	plugin.timeout = time.Hour
	plugin.beforeMount()
	assert.Equal(t, "(null)\n", n.kernels(t))

	n.want(t, "ours") // the daemon is updated
	plugin.beforeMount()
	assert.Equal(t, "ours", n.held(t))
}

func TestTheFirstMountWaitsForTheDaemon(t *testing.T) {
	n := newIDNode(t)
	plugin := n.patientPlugin(t, time.Hour)
	asked := make(chan struct{})
	load := plugin.load
	plugin.load = func() error { defer close(asked); return load() }
	done := make(chan struct{})
	go func() { defer close(done); plugin.beforeMount() }()
	<-asked
	n.write(t, "run/wanted.new", "ours")
	require.NoError(t, os.Rename(filepath.Join(n.root, "run/wanted.new"), filepath.Join(n.root, "run/wanted")))
	<-done
	assert.Equal(t, "ours", n.held(t))
}

func TestAShareIsMountedAfterTheIdentifierIsSet(t *testing.T) {
	var order []string
	n := &node{
		mounts: &mountOrder{order: &order}, log: quiet(),
		beforeNFS: func() { order = append(order, "identifier") },
	}
	_, err := n.stageShare(staging{volume: "pvc-1", path: "/stage", share: &share{}})
	require.NoError(t, err)
	assert.Equal(t, []string{"identifier", "mount"}, order)
}

// mountOrder mounts shares where nothing is mounted, and does nothing else.
type mountOrder struct {
	mounter
	order *[]string
}

func (m *mountOrder) Listed(string) (mount.Entry, error) { return mount.Entry{}, nil }

func (m *mountOrder) MountNFS(mount.Export, string, mount.NFSOptions) error {
	*m.order = append(*m.order, "mount")
	return nil
}

func TestMountsAtOnceSetOneIdentifier(t *testing.T) {
	n := newIDNode(t)
	n.want(t, "ours")
	plugin := n.plugin(t)
	var mounts sync.WaitGroup
	for range 8 {
		mounts.Go(plugin.beforeMount)
	}
	mounts.Wait()
	assert.Equal(t, "ours", n.kernels(t))
	assert.Equal(t, "ours", n.held(t))
	assert.Equal(t, 1, n.loads)
}

// The pod has the node's sysfs and its /run only below the root directory of the node's first process.
func TestTheIdentifierUsesTheNodesDirectories(t *testing.T) {
	c := newClientID(NodeOptions{HostProc: "/host/proc", KubeletDir: "/var/lib/kubelet", DriverName: "d"}, mount.New())
	assert.Equal(t, "/host/proc/1/root", c.kernel.Root)
	assert.Equal(t, "/host/proc/1/root/run/longhorn/nfs-client", c.dir)
	used, err := c.isUsed()
	require.NoError(t, err)
	assert.False(t, used, "of the mounts below the kubelet's directory of the driver d")
}
