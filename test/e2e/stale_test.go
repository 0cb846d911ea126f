package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// devicesScript prints what a node has of one volume, $1: loop devices by the name that
// the kernel keeps for them, device nodes, and mounts with their device's number. All
// nodes of a test cluster have one kernel, so the loop devices are those of any node.
const devicesScript = `
import fcntl, glob, os, stat, sys
volume = sys.argv[1]
for path in sorted(glob.glob("/sys/block/loop*/loop/backing_file")):
    name = path.split("/")[3]
    try:
        fd = os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as e:
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

// devicesOf is what a node has of a volume, a line each: "loop loop3", "node
// /dev/longhorn/… 7:3", "mount 7:3 /var/lib/kubelet/…".
func devicesOf(ctx context.Context, c *cluster.Cluster, node, volume string) ([]string, error) {
	out, err := c.OnNode(ctx, node, "python3", "-c", devicesScript, volume)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), nil
}

// waitOneDevice waits until a node has one device of a volume, and all that is mounted of the volume is on it: a pod
// that is being ended keeps its mount until its containers are gone, and its successor may run by then.
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

// isOneDevice tells whether what devicesOf lists is one device, its node, and at least two mounts of it.
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

// leftovers is what a node has of a volume that is not attached there; empty if nothing.
// A loop device counts unless the volume is attached elsewhere: the kernel is shared.
func leftovers(ctx context.Context, c *cluster.Cluster, node, volume string) (string, error) {
	lines, err := devicesOf(ctx, c, node, volume)
	if err != nil {
		return "", err
	}
	attached, err := c.Kubectl(ctx, "-n", types.Namespace, "get", "volumes.longhorn.io", volume, "-o", "jsonpath={.status.currentNodeID}")
	if err != nil {
		return "", err
	}
	loops := 0
	var left []string
	for _, line := range lines {
		if strings.HasPrefix(line, "loop ") {
			if loops++; attached != "" && loops == 1 {
				continue
			}
		}
		left = append(left, line)
	}
	return strings.Join(left, "\n"), nil
}

// checkNothingLeft fails the test if a node has anything of a volume that is not attached there.
func checkNothingLeft(ctx context.Context, t *testing.T, c *cluster.Cluster, node, volume string) {
	t.Helper()
	left, err := leftovers(ctx, c, node, volume)
	if err != nil {
		t.Fatal(err)
	}
	if left != "" {
		t.Errorf("%s still has of %s:\n%s", node, volume, left)
	}
}
