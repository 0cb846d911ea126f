package csi

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
	testingexec "k8s.io/utils/exec/testing"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// host is a node without block devices: mounts are a list, and the list determines the device of a path.
type host struct {
	mounter *mountutils.FakeMounter
	dir     string

	mu sync.Mutex
	// numbers of block devices by path, guarded by mu.
	numbers map[string]mount.DeviceNumber
	// sizes of block devices that do not have 64 MiB, guarded by mu.
	sizes map[string]int64
	// dead answers a probe of a device with an error, guarded by mu.
	dead map[string]error
	// detached paths, guarded by mu.
	detached []string
	nfs      nfsKernel
}

func newHost(t *testing.T) *host {
	return &host{mounter: mountutils.NewFakeMounter(nil), dir: t.TempDir(), numbers: map[string]mount.DeviceNumber{}, sizes: map[string]int64{}}
}

func (h *host) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

func (h *host) device(volume string) string { return h.path("dev", volume) }

// attach makes a volume's device appear.
func (h *host) attach(volume string, number mount.DeviceNumber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.numbers[h.device(volume)] = number
}

func (h *host) server() *nodeServer {
	system := mount.NewWith(h.mounter, blankDevices(), h).WithNFS(h)
	return &nodeServer{nodeID: "n1", core: &node{mounts: system, devices: h.path("dev"), log: quiet()}}
}

// blankDevices answers blkid with "nothing found" and lets mkfs succeed.
func blankDevices() utilexec.Interface {
	fake := &testingexec.FakeExec{}
	for range 512 {
		fake.CommandScript = append(fake.CommandScript, func(cmd string, args ...string) utilexec.Cmd {
			var err error
			if cmd == "blkid" {
				err = &testingexec.FakeExitError{Status: 2}
			}
			return testingexec.InitFakeCmd(&testingexec.FakeCmd{
				CombinedOutputScript: []testingexec.FakeAction{func() ([]byte, []byte, error) { return nil, nil, err }},
			}, cmd, args...)
		})
	}
	return fake
}

// Inspect implements mount.Files. Like the kernel, it shows the device under a mount.
func (h *host) Inspect(path string) (mount.Inode, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number, ok := h.numbers[path]; ok {
		return mount.Inode{Block: true, Device: number}, nil
	}
	inode, err := mount.HostFiles{}.Inspect(path)
	points, _ := h.mounter.List()
	for _, p := range points {
		if number, ok := h.numbers[p.Device]; ok && p.Path == path {
			return mount.Inode{Block: p.Type == "", Device: number}, err
		}
	}
	return inode, err
}

func (h *host) ReadEnds(string) error { return nil }

// Hold implements mount.Files.
func (h *host) Hold(device string) (mount.DeviceNumber, func(), error) {
	inode, err := h.Inspect(device)
	return inode.Device, func() {}, err
}

// Probe implements mount.Files.
func (h *host) Probe(device string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead[device]
}

// Detach implements mount.Files. Unlike the mounter's Unmount, it is never refused.
func (h *host) Detach(path string) error {
	h.mu.Lock()
	h.detached = append(h.detached, path)
	h.mu.Unlock()
	refuse := h.mounter.UnmountFunc
	h.mounter.UnmountFunc = nil
	defer func() { h.mounter.UnmountFunc = refuse }()
	return h.mounter.Unmount(path)
}

// DeviceSize implements mount.Files.
func (h *host) DeviceSize(device string) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.sizes[device], 64<<20), nil
}

func (h *host) Statfs(path string) (mount.Statistics, error) {
	if err := h.nfs.silence(path); err != nil {
		return mount.Statistics{}, err
	}
	return mount.Statistics{TotalBytes: 100, UsedBytes: 30, AvailableBytes: 60, TotalInodes: 10, UsedInodes: 4, FreeInodes: 6}, nil
}

// mounts lists the mounts, as device → path below the host's directory.
func (h *host) mounts() map[string]string {
	result := map[string]string{}
	points, _ := h.mounter.List()
	for _, p := range points {
		rel, _ := filepath.Rel(h.dir, p.Path)
		result[rel] = filepath.Base(p.Device) + " " + p.Type
	}
	for _, e := range h.nfs.entries {
		rel, _ := filepath.Rel(h.dir, e.Path)
		result[rel] = fmt.Sprintf("%s %s %d", e.Source, e.Type, e.Device)
		if e.ReadOnly {
			result[rel] += " ro"
		}
	}
	return result
}

func (h *host) stage(s *nodeServer, volume string, c *csipb.VolumeCapability) error {
	_, err := s.NodeStageVolume(context.Background(), &csipb.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: h.path("staging"), VolumeCapability: c,
	})
	return err
}

func (h *host) publish(s *nodeServer, volume string, c *csipb.VolumeCapability) error {
	_, err := s.NodePublishVolume(context.Background(), &csipb.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: h.path("staging"), TargetPath: h.path("pods", "p1", "mount"), VolumeCapability: c,
	})
	return err
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	require.Equal(t, want, status.Code(err), "%s: %v", what, err)
}

func TestNodeLifeOfAFilesystemVolume(t *testing.T) {
	h := newHost(t)
	s := h.server()
	fsys := capabilityOf(multiWriter, "ext4")
	wantCode(t, "stage without a device", h.stage(s, "pvc-1", fsys), codes.FailedPrecondition)
	h.attach("pvc-1", 7)
	wantCode(t, "publish before stage", h.publish(s, "pvc-1", fsys), codes.FailedPrecondition)
	for _, what := range []string{"stage", "stage again"} {
		wantCode(t, what, h.stage(s, "pvc-1", fsys), codes.OK)
	}
	for _, what := range []string{"publish", "publish again"} {
		wantCode(t, what, h.publish(s, "pvc-1", fsys), codes.OK)
	}
	// The fake mounter shows a bind with no type; the kernel would show ext4.
	want := map[string]string{"staging": "pvc-1 ext4", "pods/p1/mount": "pvc-1 "}
	require.Equal(t, want, h.mounts())
	unpublish := &csipb.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: h.path("pods", "p1", "mount")}
	unstage := &csipb.NodeUnstageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: h.path("staging")}
	for range 2 {
		_, err := s.NodeUnpublishVolume(t.Context(), unpublish)
		wantCode(t, "unpublish", err, codes.OK)
	}
	for range 2 {
		_, err := s.NodeUnstageVolume(t.Context(), unstage)
		wantCode(t, "unstage", err, codes.OK)
	}
	assert.Empty(t, h.mounts(), "left mounted")
	for _, path := range []string{unpublish.TargetPath, unstage.StagingTargetPath} {
		_, err := os.Stat(path)
		assert.ErrorIs(t, err, os.ErrNotExist, "%s is left", path)
	}
}

func TestNodeLifeOfABlockVolume(t *testing.T) {
	h := newHost(t)
	s := h.server()
	h.attach("pvc-1", 7)
	block := blockOf(writer)
	for range 2 {
		wantCode(t, "stage", h.stage(s, "pvc-1", block), codes.OK)
		wantCode(t, "publish", h.publish(s, "pvc-1", block), codes.OK)
	}
	want := map[string]string{"staging/pvc-1": "pvc-1 ", "pods/p1/mount": "pvc-1 "}
	require.Equal(t, want, h.mounts())
	stats, err := s.NodeGetVolumeStats(t.Context(), &csipb.NodeGetVolumeStatsRequest{VolumeId: "pvc-1", VolumePath: h.path("pods", "p1", "mount")})
	wantCode(t, "stats", err, codes.OK)
	u := stats.Usage
	require.Len(t, u, 1)
	assert.Equal(t, csipb.VolumeUsage_BYTES, u[0].Unit)
	assert.Equal(t, int64(64<<20), u[0].Total)
	_, err = s.NodeUnpublishVolume(t.Context(), &csipb.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: h.path("pods", "p1", "mount")})
	wantCode(t, "unpublish", err, codes.OK)
	_, err = s.NodeUnstageVolume(t.Context(), &csipb.NodeUnstageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: h.path("staging")})
	wantCode(t, "unstage", err, codes.OK)
	assert.Empty(t, h.mounts(), "left mounted")
}

func TestAVolumeOfOnePodIsRefusedToASecond(t *testing.T) {
	for _, c := range []struct {
		name string
		mode csipb.VolumeCapability_AccessMode_Mode
		want codes.Code
	}{
		{"one pod only → refused", singleWriter, codes.FailedPrecondition},
		{"any pod of the node → published", multiWriter, codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			s := h.server()
			h.attach("pvc-1", 7)
			fsys := capabilityOf(c.mode, "ext4")
			wantCode(t, "stage", h.stage(s, "pvc-1", fsys), codes.OK)
			wantCode(t, "publish", h.publish(s, "pvc-1", fsys), codes.OK)
			wantCode(t, "publish again", h.publish(s, "pvc-1", fsys), codes.OK)
			_, err := s.NodePublishVolume(t.Context(), &csipb.NodePublishVolumeRequest{
				VolumeId: "pvc-1", StagingTargetPath: h.path("staging"), TargetPath: h.path("pods", "p2"), VolumeCapability: fsys,
			})
			wantCode(t, "publish to a second pod", err, c.want)
		})
	}
}

func TestStageRefusesAPlainFileWhereTheDeviceShouldBe(t *testing.T) {
	h := newHost(t)
	require.NoError(t, os.MkdirAll(h.device("pvc-dir"), 0o700))
	require.NoError(t, os.WriteFile(h.device("pvc-1"), []byte("left over"), 0o600))
	s := h.server()
	for _, volume := range []string{"pvc-1", "pvc-dir"} {
		for _, c := range []*csipb.VolumeCapability{capabilityOf(writer, "ext4"), blockOf(writer)} {
			wantCode(t, "stage "+volume, h.stage(s, volume, c), codes.FailedPrecondition)
		}
	}
	assert.Empty(t, h.mounts())
	data, _ := os.ReadFile(h.device("pvc-1"))
	assert.Equal(t, "left over", string(data), "the file was touched")
}

func TestStageRedoesAMountWhoseDeviceWasReplaced(t *testing.T) {
	h := newHost(t)
	s := h.server()
	fsys := capabilityOf(writer, "xfs")
	h.attach("pvc-1", 7)
	wantCode(t, "stage", h.stage(s, "pvc-1", fsys), codes.OK)
	wantCode(t, "publish", h.publish(s, "pvc-1", fsys), codes.OK)
	// Attached again: the mounts are still on number 7, under another name now.
	h.mounter.MountPoints[0].Device, h.mounter.MountPoints[1].Device = "/dev/old", "/dev/old"
	h.numbers["/dev/old"] = 7
	h.attach("pvc-1", 9)
	wantCode(t, "stage again", h.stage(s, "pvc-1", fsys), codes.OK)
	wantCode(t, "publish again", h.publish(s, "pvc-1", fsys), codes.OK)
	want := map[string]string{"staging": "pvc-1 xfs", "pods/p1/mount": "pvc-1 "}
	assert.Equal(t, want, h.mounts())
}

func TestUnstageLeavesAUsersFileOfTheVolumesName(t *testing.T) {
	h := newHost(t)
	s := h.server()
	require.NoError(t, os.MkdirAll(h.path("staging"), 0o700))
	// This is not a mount, so unstaging must not remove it: unstaging fails and the file stays.
	file := h.path("staging", "pvc-1")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	_, err := s.NodeUnstageVolume(t.Context(), &csipb.NodeUnstageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: h.path("staging")})
	wantCode(t, "unstage", err, codes.Internal)
	data, _ := os.ReadFile(file)
	assert.Equal(t, "precious", string(data))
}

func TestNodeRefusals(t *testing.T) {
	h := newHost(t)
	h.attach("pvc-1", 7)
	s := h.server()
	stage := func(change func(*csipb.NodeStageVolumeRequest)) error {
		r := &csipb.NodeStageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: h.path("staging"), VolumeCapability: capabilityOf(writer, "")}
		change(r)
		_, err := s.NodeStageVolume(t.Context(), r)
		return err
	}
	cases := []struct {
		name   string
		change func(*csipb.NodeStageVolumeRequest)
		code   codes.Code
	}{
		{"no volume", func(r *csipb.NodeStageVolumeRequest) { r.VolumeId = "" }, codes.InvalidArgument},
		{"a volume that is a path", func(r *csipb.NodeStageVolumeRequest) { r.VolumeId = "../sda" }, codes.NotFound},
		{"no path", func(r *csipb.NodeStageVolumeRequest) { r.StagingTargetPath = "" }, codes.InvalidArgument},
		{"a relative path", func(r *csipb.NodeStageVolumeRequest) { r.StagingTargetPath = "staging" }, codes.InvalidArgument},
		{"no capability", func(r *csipb.NodeStageVolumeRequest) { r.VolumeCapability = nil }, codes.InvalidArgument},
		{"many nodes, but no share", func(r *csipb.NodeStageVolumeRequest) { r.VolumeCapability = capabilityOf(multiNode, "") }, codes.FailedPrecondition},
		{"a block volume for many nodes", func(r *csipb.NodeStageVolumeRequest) { r.VolumeCapability = blockOf(multiNode) }, codes.InvalidArgument},
		{"a file system that is not offered", func(r *csipb.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"fsType": "ntfs"} }, codes.InvalidArgument},
		{"a path for mkfs", func(r *csipb.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"mkfsParams": "-d /root"} }, codes.InvalidArgument},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { wantCode(t, "stage", stage(c.change), c.code) })
	}
	_, err := s.NodeGetVolumeStats(t.Context(), &csipb.NodeGetVolumeStatsRequest{VolumeId: "pvc-1", VolumePath: h.dir})
	wantCode(t, "stats of a path with nothing mounted", err, codes.NotFound)
	unlock, _ := s.locks.tryLock("pvc-1")
	defer unlock()
	wantCode(t, "stage while another call is at work", stage(func(*csipb.NodeStageVolumeRequest) {}), codes.Aborted)
}
