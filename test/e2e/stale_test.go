package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// devicesScript prints everything that a node has of one volume, $1: loop devices by the name that the kernel stores
// for them, device nodes, and mounts with their device's number. All nodes of a test cluster share one kernel, so the
// loop devices may belong to any node.
const devicesScript = `
import errno, fcntl, glob, os, stat, sys
volume = sys.argv[1]
for path in sorted(glob.glob("/sys/block/loop*/loop/backing_file")):
    name = path.split("/")[3]
    try:
        fd = os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as e:
        if e.errno not in (errno.ENXIO, errno.ENOENT):  # those end just now, whosesoever they are
            print("loop", name, e)
        continue
    status = bytearray(232)
    try:
        fcntl.ioctl(fd, 0x4C05, status)  # LOOP_GET_STATUS64; the name begins at byte 56
        if volume.encode() in bytes(status[56:120]):
            print("loop", name)
    except OSError:
        pass  # it ended meanwhile
    os.close(fd)
device = "/dev/longhorn/" + volume
if os.path.lexists(device):
    s = os.lstat(device)
    print("node", device, "%d:%d" % (os.major(s.st_rdev), os.minor(s.st_rdev)) if stat.S_ISBLK(s.st_mode) else "not a block device")
for line in open("/proc/self/mountinfo"):
    fields = line.split()
    if volume in line:
        print("mount", fields[2], fields[4])
`

// devicesOf returns everything that a node has of a volume, a line each: "loop loop3", "node /dev/longhorn/… 7:3",
// "mount 7:3 /var/lib/kubelet/…".
func devicesOf(ctx context.Context, c *cluster.Cluster, node, volume string) ([]string, error) {
	out, err := c.OnNode(ctx, node, "python3", "-c", devicesScript, volume)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), nil
}

// TestDevicesThatEndAreNobodys: a loop device that cannot be opened because it is being removed is not counted as the
// volume's. A device that cannot be opened for another reason is counted.
func TestDevicesThatEndAreNobodys(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	const refusing = `
import glob, os
glob.glob = lambda _: ["/sys/block/loop99/loop/backing_file"]
def refuse(*_):
    raise OSError(%s, "refused")
os.open = refuse
`
	for _, tc := range []struct{ name, errno, want string }{
		{"it is being cleared → not listed", "6", ""}, // ENXIO
		{"its node has gone → not listed", "2", ""},   // ENOENT
		{"no permission → listed, it may be the volume's", "13", "loop loop99 [Errno 13] refused\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "python3", "-c", fmt.Sprintf(refusing, tc.errno)+devicesScript, "no-such-volume").CombinedOutput()
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(out))
		})
	}
}

// waitOneDevice waits until a node has one device of a volume, and all mounts of the volume are on it. A pod that is
// being deleted keeps its mount until its containers are gone, and its successor may already run.
func waitOneDevice(ctx context.Context, t *testing.T, c *cluster.Cluster, node, volume string) {
	t.Helper()
	what := fmt.Sprintf("%s has one device of %s, mounted for staging and for the pod", node, volume)
	cluster.Eventually(ctx, t, time.Minute, what, func(ctx context.Context) error {
		lines, err := devicesOf(ctx, c, node, volume)
		if err != nil {
			return err
		}
		if !isOneDevice(lines) {
			return fmt.Errorf("it has\n%s", strings.Join(lines, "\n"))
		}
		return nil
	})
}

// isOneDevice reports whether the lines of devicesOf are one device, its node, and at least two mounts of it.
func isOneDevice(lines []string) bool {
	kinds := map[string]int{}
	numbers := map[string]bool{}
	for _, line := range lines {
		fields := strings.Fields(line)
		kinds[fields[0]]++
		switch fields[0] {
		case "loop":
			numbers["7:"+strings.TrimPrefix(fields[1], "loop")] = true
		case "node":
			numbers[fields[2]] = true
		case "mount":
			numbers[fields[1]] = true
		}
	}
	return kinds["loop"] == 1 && kinds["node"] == 1 && kinds["mount"] >= 2 && len(numbers) == 1
}

// leftovers returns everything that a node has of a volume that is not attached there, or an empty string. A loop
// device counts unless the volume is attached to another node, because the nodes share a kernel.
func leftovers(ctx context.Context, c *cluster.Cluster, node, volume string) (string, error) {
	attached, err := c.Kubectl(ctx, "-n", types.Namespace, "get", "volumes.longhorn.io", volume, "-o", "jsonpath={.status.currentNodeID}")
	if err != nil {
		return "", err
	}
	return leftoversOf(ctx, c, node, volume, attached != "")
}

// leftoversOf is leftovers for a caller that knows whether the volume is attached to another node. It does not call the
// API server.
func leftoversOf(ctx context.Context, c *cluster.Cluster, node, volume string, attached bool) (string, error) {
	lines, err := devicesOf(ctx, c, node, volume)
	if err != nil {
		return "", err
	}
	loops := 0
	var left []string
	for _, line := range lines {
		if strings.HasPrefix(line, "loop ") {
			if loops++; attached && loops == 1 {
				continue
			}
		}
		left = append(left, line)
	}
	return strings.Join(left, "\n"), nil
}

// waitNothingLeft waits until a node has nothing of a volume that is not attached there. The kernel removes a loop
// device when its last user has closed it, and that user may be a program that only inspected it. On nodes with their
// own kernels, one inspection takes seconds.
func waitNothingLeft(ctx context.Context, t *testing.T, c *cluster.Cluster, node, volume string) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, fmt.Sprintf("nothing of %s is left on %s", volume, node), func(ctx context.Context) error {
		left, err := leftovers(ctx, c, node, volume)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
}
