package csi

import (
	"errors"
	"os"
	"syscall"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
)

// staged is a node with a volume staged and published; its device has the number 7.
func staged(t *testing.T, c *csipb.VolumeCapability) (*host, *nodeServer) {
	t.Helper()
	h := newHost(t)
	s := h.server()
	h.attach("pvc-1", 7)
	wantCode(t, "stage", h.stage(s, "pvc-1", c), codes.OK)
	wantCode(t, "publish", h.publish(s, "pvc-1", c), codes.OK)
	return h, s
}

// replaceDevice leaves the mounts on number 7, under another name, and gives the volume the number 9, as if it was
// attached again.
func (h *host) replaceDevice() {
	for i := range h.mounter.MountPoints {
		h.mounter.MountPoints[i].Device = "/dev/old"
	}
	h.attach("pvc-1", 9)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.numbers["/dev/old"] = 7
}

// busy makes every ordinary unmount fail.
func (h *host) busy() {
	h.mounter.UnmountFunc = func(string) error { return syscall.EBUSY }
}

func (h *host) unpublish(t *testing.T, s *nodeServer) error {
	_, err := s.NodeUnpublishVolume(t.Context(), &csipb.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: h.path("pods", "p1", "mount")})
	return err
}

func (h *host) unstage(t *testing.T, s *nodeServer) error {
	_, err := s.NodeUnstageVolume(t.Context(), &csipb.NodeUnstageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: h.path("staging")})
	return err
}

func TestPublishStagesAgainWhereTheDeviceWasReplaced(t *testing.T) {
	for _, c := range []struct {
		name       string
		capability *csipb.VolumeCapability
		want       map[string]string
	}{
		{"a file system → mounted again", capabilityOf(multiWriter, "xfs"), map[string]string{
			"staging": "pvc-1 xfs", "pods/p1/mount": "old ", "pods/p2": "pvc-1 ",
		}},
		{"a block device → bound again", blockOf(multiWriter), map[string]string{
			"staging/pvc-1": "pvc-1 ", "pods/p1/mount": "old ", "pods/p2": "pvc-1 ",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, s := staged(t, c.capability)
			h.replaceDevice()
			h.busy() // the first pod still has files open there
			_, err := s.NodePublishVolume(t.Context(), &csipb.NodePublishVolumeRequest{
				VolumeId: "pvc-1", StagingTargetPath: h.path("staging"), TargetPath: h.path("pods", "p2"), VolumeCapability: c.capability,
			})
			wantCode(t, "publish to the pod that replaces the first", err, codes.OK)
			assert.Equal(t, c.want, h.mounts())
			h.mounter.UnmountFunc = nil
			wantCode(t, "unpublish from the first pod", h.unpublish(t, s), codes.OK)
		})
	}
}

func TestPublishRefusesADeadDevice(t *testing.T) {
	fsys := capabilityOf(multiWriter, "ext4")
	t.Run("the device answers with errors → come back later", func(t *testing.T) {
		h, s := staged(t, fsys)
		h.dead = map[string]error{h.device("pvc-1"): syscall.EIO}
		wantCode(t, "publish", h.publish(s, "pvc-1", fsys), codes.Unavailable)
		wantCode(t, "stage", h.stage(s, "pvc-1", fsys), codes.Unavailable)
	})
	t.Run("the device is gone → not attached", func(t *testing.T) {
		h, s := staged(t, fsys)
		h.replaceDevice()
		delete(h.numbers, h.device("pvc-1"))
		wantCode(t, "publish", h.publish(s, "pvc-1", fsys), codes.FailedPrecondition)
		wantCode(t, "stage", h.stage(s, "pvc-1", fsys), codes.FailedPrecondition)
	})
}

func TestUnmountABusyMount(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(h *host)
		code     codes.Code
		detached int
	}{
		{"a live device → refused, nothing is taken off", func(*host) {}, codes.Internal, 0},
		{"the device was replaced → detached", (*host).replaceDevice, codes.OK, 2},
		{"the device is gone → detached", func(h *host) { h.replaceDevice(); delete(h.numbers, h.device("pvc-1")) }, codes.OK, 2},
		{"the device answers with errors → detached", func(h *host) {
			h.dead = map[string]error{h.device("pvc-1"): &os.PathError{Op: "read", Path: "pvc-1", Err: syscall.EIO}}
		}, codes.OK, 2},
		{"the device answers with an error of another kind → it may be alive, refused", func(h *host) {
			h.dead = map[string]error{h.device("pvc-1"): syscall.EINVAL}
		}, codes.Internal, 0},
	} {
		for kind, capability := range map[string]*csipb.VolumeCapability{"file system": capabilityOf(writer, "ext4"), "block": blockOf(writer)} {
			t.Run(kind+" on "+c.name, func(t *testing.T) {
				h, s := staged(t, capability)
				c.change(h)
				h.busy()
				wantCode(t, "unpublish", h.unpublish(t, s), c.code)
				wantCode(t, "unstage", h.unstage(t, s), c.code)
				assert.Len(t, h.detached, c.detached)
				assert.Len(t, h.mounts(), 2-c.detached)
				for _, path := range []string{h.path("pods", "p1", "mount"), h.path("staging")} {
					_, err := os.Lstat(path)
					assert.Equal(t, c.code == codes.OK, errors.Is(err, os.ErrNotExist), "%s: %v", path, err)
				}
			})
		}
	}
}
