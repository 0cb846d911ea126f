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

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/instance/proto"
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

// loopOf is the directory of a device in sysfs.
func loopOf(t testing.TB, device string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(device, &st))
	return fmt.Sprintf("/sys/dev/block/%d:%d/loop", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// awaitGone waits until a path is gone: the kernel clears a loop device after its last user, with nothing to wait on.
func awaitGone(t testing.TB, path string) {
	t.Helper()
	for range 200 {
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s is left", path)
}

func TestAForcedStopEndsAVolumeThatIsMountedAndLeavesNothing(t *testing.T) {
	if !mountns.Own(t) { // whoever makes a namespace of the machine's mounts in the meantime would hold the device
		return
	}
	needDevices(t)
	n := newNode(t, 1)
	c, device := n.withDevice()
	tool(t, "mkfs.ext4", "-q", device)
	mounted := filepath.Join(n.root, "mounted")
	must(t, os.Mkdir(mounted, 0o700))
	must(t, unix.Mount(device, mounted, "ext4", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(mounted, "file"), []byte("synced"), 0o600))
	tool(t, "sync", "-f", mounted)
	loop := loopOf(t, device)

	engine := &proto.EngineRef{Name: volume + "-e-0"}
	if _, err := n.EngineStop(t.Context(), engine); reason(err) != reasonInUse {
		t.Fatalf("stop of a mounted volume: %v", err)
	}
	engine.Force = true
	_, err := n.EngineStop(t.Context(), engine)
	must(t, err)
	n.until("no engine", func(s *proto.State) bool { return len(s.GetEngines()) == 0 })
	if _, err := os.Lstat(device); !os.IsNotExist(err) {
		t.Errorf("the device's node is left: %v", err)
	}
	if f, err := os.OpenFile(filepath.Join(mounted, "late"), os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o600); err == nil {
		if _, err := f.WriteString("late"); err == nil {
			t.Error("a write was acknowledged after the engine's end")
		}
		_ = f.Close()
	}
	must(t, unix.Unmount(mounted, 0))
	awaitGone(t, loop)

	// The volume is as it was flushed.
	s := c.engineSpec(2, &proto.Epoch{Generation: 1, Counter: 1, Members: []string{n.replicaName()}})
	s.Frontend = proto.Frontend_FRONTEND_BLOCK
	c.manage(n, s)
	must(t, unix.Mount(device, mounted, "ext4", 0, ""))
	if b, err := os.ReadFile(filepath.Join(mounted, "file")); err != nil || string(b) != "synced" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	must(t, unix.Unmount(mounted, 0))
	n.stopEngine()
}

// deviceRootEnv, when set, makes the test below the process that is killed.
const deviceRootEnv = "INSTANCE_KILL_TEST_ROOT"

func TestTheDevicesOfAProcessThatWasKilledAreRemovedByTheNext(t *testing.T) {
	needDevices(t)
	if root := os.Getenv(deviceRootEnv); root != "" {
		_, device := nodeAt(t, 1, root).withDevice()
		fmt.Printf("device %s %s\n", device, loopOf(t, device))
		select {}
	}
	root, err := os.MkdirTemp("", "lh")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheDevicesOfAProcessThatWasKilledAreRemovedByTheNext$")
	cmd.Env = append(os.Environ(), deviceRootEnv+"="+root)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var device, loop string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "device %s %s", &device, &loop); n == 2 {
			break
		}
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if device == "" {
		t.Fatal("the process made no device")
	}
	awaitGone(t, loop)
	if _, err := os.Lstat(device); err != nil {
		t.Fatalf("the node of the process that was killed: %v", err)
	}

	n := nodeAt(t, 1, root)
	if _, err := os.Lstat(device); !os.IsNotExist(err) {
		t.Errorf("the node is left: %v", err)
	}
	n.startReplica()
	c := cluster{n}
	s := c.engineSpec(2, &proto.Epoch{Generation: 1, Counter: 1, Members: []string{n.replicaName()}})
	s.Frontend = proto.Frontend_FRONTEND_BLOCK
	c.manage(n, s)
	if got := n.untilEngine(proto.Phase_PHASE_RUNNING).GetEndpoint(); got != device || strings.Contains(got, " ") {
		t.Errorf("device %q, want %q", got, device)
	}
	_, err = n.EngineStop(context.Background(), &proto.EngineRef{Name: volume + "-e-0"})
	must(t, err)
}
