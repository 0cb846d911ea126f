package instance

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

func needDevices(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/dev/loop-control", "/dev/fuse"} {
		if _, err := os.Stat(path); os.Getuid() != 0 || err != nil {
			t.Skip("block devices need root, FUSE and loop devices")
		}
	}
}

// withDevice starts an engine with a device on one node with one replica.
func (n *node) withDevice() (c cluster, device string) {
	n.t.Helper()
	c = cluster{n}
	n.createReplica()
	s := c.engineSpec(1, nil)
	s.Frontend = proto.Frontend_FRONTEND_BLOCK
	c.manage(n, s)
	return c, n.untilEngine(proto.Phase_PHASE_RUNNING).GetEndpoint()
}

// loopOf returns the directory of a device in sysfs, together with its sequence number. The sequence number
// distinguishes the device from others with the same device number, because the kernel reuses free numbers.
func loopOf(t testing.TB, device string) string {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(device, &st))
	dir := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	return dir + "#" + sequenceOf(dir)
}

func sequenceOf(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "diskseq"))
	return strings.TrimSpace(string(b))
}

// awaitGone waits until the device from loopOf is gone. The kernel clears a loop device after its last user has closed
// it, and reports no event for that.
func awaitGone(t testing.TB, loop string) {
	t.Helper()
	dir, sequence, _ := strings.Cut(loop, "#")
	for range 500 {
		if _, err := os.Lstat(filepath.Join(dir, "loop")); os.IsNotExist(err) || sequenceOf(dir) != sequence {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s is left", loop)
}

func TestAForcedStopEndsAVolumeThatIsMountedAndLeavesNothing(t *testing.T) {
	// Otherwise another namespace with a copy of the machine's mounts could hold the device.
	if !mountns.Own(t) {
		return
	}
	needDevices(t)
	n := newNode(t, 1)
	c, device := n.withDevice()
	tool(t, "mkfs.ext4", "-q", device)
	mounted := filepath.Join(n.root, "mounted")
	require.NoError(t, os.Mkdir(mounted, 0o700))
	require.NoError(t, unix.Mount(device, mounted, "ext4", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	require.NoError(t, os.WriteFile(filepath.Join(mounted, "file"), []byte("synced"), 0o600))
	tool(t, "sync", "-f", mounted)
	loop := loopOf(t, device)

	engine := &proto.EngineRef{Name: volume + "-e-0"}
	_, err := n.EngineStop(t.Context(), engine)
	require.Equal(t, reasonInUse, reason(err), "stop of a mounted volume: %v", err)
	engine.Force = true
	_, err = n.EngineStop(t.Context(), engine)
	require.NoError(t, err)
	n.until("no engine", func(s *proto.State) bool { return len(s.GetEngines()) == 0 })
	_, err = os.Lstat(device)
	assert.ErrorIs(t, err, os.ErrNotExist, "the device's node is left")
	if f, err := os.OpenFile(filepath.Join(mounted, "late"), os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o600); err == nil {
		_, err := f.WriteString("late")
		assert.Error(t, err, "a write was acknowledged after the engine's end")
		_ = f.Close()
	}
	require.NoError(t, unix.Unmount(mounted, 0))
	awaitGone(t, loop)

	// The volume has the flushed data.
	s := c.engineSpec(2, &proto.Epoch{Generation: 1, Counter: 1, Members: []string{n.replicaName()}})
	s.Frontend = proto.Frontend_FRONTEND_BLOCK
	c.manage(n, s)
	require.NoError(t, unix.Mount(device, mounted, "ext4", 0, ""))
	b, err := os.ReadFile(filepath.Join(mounted, "file"))
	require.NoError(t, err)
	assert.Equal(t, "synced", string(b))
	require.NoError(t, unix.Unmount(mounted, 0))
	n.stopEngine()
}

// deviceRootEnv, if set, turns the test below into the process that is killed.
const deviceRootEnv = "INSTANCE_KILL_TEST_ROOT"

func TestTheDevicesOfAProcessThatWasKilledAreRemovedByTheNext(t *testing.T) {
	needDevices(t)
	if root := os.Getenv(deviceRootEnv); root != "" {
		_, device := nodeAt(t, 1, root).withDevice()
		fmt.Printf("device %s %s\n", device, loopOf(t, device))
		select {}
	}
	root, err := os.MkdirTemp("", "lh")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheDevicesOfAProcessThatWasKilledAreRemovedByTheNext$")
	cmd.Env = append(os.Environ(), deviceRootEnv+"="+root)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var device, loop string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "device %s %s", &device, &loop); n == 2 {
			break
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	require.NotEmpty(t, device, "the process made no device")
	awaitGone(t, loop)
	_, err = os.Lstat(device)
	require.NoError(t, err, "the node of the process that was killed")

	n := nodeAt(t, 1, root)
	_, err = os.Lstat(device)
	assert.ErrorIs(t, err, os.ErrNotExist, "the node is left")
	n.startReplica()
	c := cluster{n}
	s := c.engineSpec(2, &proto.Epoch{Generation: 1, Counter: 1, Members: []string{n.replicaName()}})
	s.Frontend = proto.Frontend_FRONTEND_BLOCK
	c.manage(n, s)
	got := n.untilEngine(proto.Phase_PHASE_RUNNING).GetEndpoint()
	assert.Equal(t, device, got)
	assert.NotContains(t, got, " ")
	_, err = n.EngineStop(context.Background(), &proto.EngineRef{Name: volume + "-e-0"})
	require.NoError(t, err)
}
