package csi

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// nfsKernel is the NFS client of a host, and the mounts of shares.
type nfsKernel struct {
	mu sync.Mutex
	// entries are the mounts, the last on top. last is the number of the newest file system.
	entries []mount.Entry
	last    mount.DeviceNumber
	// answers are the servers' answers by the number of the file system; nil: success.
	answers map[mount.DeviceNumber]error
	// refuse returns an error from a call: connect, mount, load, unmount.
	refuse map[string]error
	// bindsNothing: a bind shows the directory beneath the mount.
	bindsNothing bool
	// calls of mount and unmount.
	calls []string
}

func (k *nfsKernel) at(path string) (mount.Entry, bool) {
	for _, e := range slices.Backward(k.entries) {
		if e.Path == path {
			return e, true
		}
	}
	return mount.Entry{}, false
}

func (k *nfsKernel) silence(path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, _ := k.at(path)
	return k.answers[e.Device]
}

// silent makes all servers with a mount return an error.
func (k *nfsKernel) silent(err error) {
	k.answers = map[mount.DeviceNumber]error{}
	for _, e := range k.entries {
		k.answers[e.Device] = err
	}
}

// Table implements mount.Files.
func (h *host) Table() ([]mount.Entry, error) {
	points, err := h.mounter.List()
	h.mu.Lock()
	defer h.mu.Unlock()
	var table []mount.Entry
	for _, p := range points {
		table = append(table, mount.Entry{Path: p.Path, Type: "ext4", Source: p.Device, Device: h.numbers[p.Device]})
	}
	h.nfs.mu.Lock()
	defer h.nfs.mu.Unlock()
	return append(table, h.nfs.entries...), err
}

// Unmount implements mount.Files.
func (h *host) Umount(path string, flags int) error {
	k := &h.nfs
	k.mu.Lock()
	defer k.mu.Unlock()
	how := map[int]string{0: "unmount", unix.MNT_DETACH: "detach", unix.MNT_DETACH | unix.MNT_FORCE: "force"}[flags]
	k.calls = append(k.calls, how+" "+strings.TrimPrefix(path, h.dir+"/"))
	if err := k.refuse[how]; err != nil {
		return err
	}
	e, ok := k.at(path)
	if !ok {
		return syscall.EINVAL
	}
	k.entries = slices.Delete(k.entries, slices.Index(k.entries, e), slices.Index(k.entries, e)+1)
	return nil
}

// Bind implements mount.Files.
func (h *host) Bind(source, target string, readOnly bool) error {
	k := &h.nfs
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.at(source)
	if !ok || k.bindsNothing {
		e = mount.Entry{Type: "ext4", Source: "/dev/sda", Device: 1}
	}
	e.Path, e.ReadOnly = target, e.ReadOnly || readOnly
	k.entries = append(k.entries, e)
	return nil
}

// Connect implements mount.NFSClient.
func (h *host) Connect(netip.AddrPort, time.Duration) (netip.Addr, error) {
	return netip.MustParseAddr("10.9.0.2"), h.nfs.refuse["connect"]
}

// Mount implements mount.NFSClient.
func (h *host) Mount(source, target string, flags uintptr, data string) error {
	k := &h.nfs
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, "mount "+source+" "+data)
	if err := k.refuse["mount"]; err != nil {
		return err
	}
	k.last++
	k.entries = append(k.entries, mount.Entry{Path: target, Type: "nfs4", Source: source, Device: 100 + k.last, ReadOnly: flags&unix.MS_RDONLY != 0})
	return nil
}

// Load implements mount.NFSClient.
func (h *host) Load() error { return h.nfs.refuse["load"] }

// sharedHost is a node, with the requests for a volume that is served at an endpoint.
type sharedHost struct {
	*host
	s        *nodeServer
	endpoint string
	context  map[string]string
	as       *csipb.VolumeCapability
}

func newSharedHost(t *testing.T) *sharedHost {
	h := newHost(t)
	h.nfs.refuse = map[string]error{}
	return &sharedHost{host: h, s: h.server(), endpoint: testEndpoint, as: capabilityOf(multiNode, "ext4")}
}

func (h *sharedHost) stage(t *testing.T) error {
	_, err := h.s.NodeStageVolume(t.Context(), &csipb.NodeStageVolumeRequest{
		VolumeId: "pvc-1", StagingTargetPath: h.path("staging"), VolumeCapability: h.as,
		PublishContext: map[string]string{"shareEndpoint": h.endpoint}, VolumeContext: h.context,
	})
	return err
}

func (h *sharedHost) publish(t *testing.T, pod string, readOnly bool) error {
	_, err := h.s.NodePublishVolume(t.Context(), &csipb.NodePublishVolumeRequest{
		VolumeId: "pvc-1", StagingTargetPath: h.path("staging"), TargetPath: h.path("pods", pod, "mount"), VolumeCapability: h.as, Readonly: readOnly,
		PublishContext: map[string]string{"shareEndpoint": h.endpoint}, VolumeContext: h.context,
	})
	return err
}

// stagedShare is a node with a staged shared volume. If published is true, it is published to p1.
func stagedShare(t *testing.T, published bool) *sharedHost {
	t.Helper()
	h := newSharedHost(t)
	wantCode(t, "stage", h.stage(t), codes.OK)
	if published {
		wantCode(t, "publish", h.publish(t, "p1", false), codes.OK)
	}
	h.nfs.calls = nil
	return h
}

const first, second = "10.0.0.1:/pvc-1 nfs4 101", "10.0.0.1:/pvc-1 nfs4 102"

func TestNodeLifeOfASharedVolume(t *testing.T) {
	h := newSharedHost(t)
	wantCode(t, "publish before stage", h.publish(t, "p1", false), codes.FailedPrecondition)
	for range 2 {
		wantCode(t, "stage", h.stage(t), codes.OK)
	}
	for range 2 {
		wantCode(t, "publish", h.publish(t, "p1", false), codes.OK)
		wantCode(t, "publish read-only", h.publish(t, "p2", true), codes.OK)
	}
	require.Equal(t, map[string]string{"staging": first, "pods/p1/mount": first, "pods/p2/mount": first + " ro"}, h.mounts())
	stats, err := h.s.NodeGetVolumeStats(t.Context(), &csipb.NodeGetVolumeStatsRequest{VolumeId: "pvc-1", VolumePath: h.path("pods", "p1", "mount")})
	wantCode(t, "stats", err, codes.OK)
	assert.Equal(t, int64(60), stats.Usage[0].Available)
	grown, err := h.s.NodeExpandVolume(t.Context(), &csipb.NodeExpandVolumeRequest{
		VolumeId: "pvc-1", VolumePath: h.path("staging"), CapacityRange: &csipb.CapacityRange{RequiredBytes: 1 << 30},
	})
	wantCode(t, "expand", err, codes.OK)
	assert.Equal(t, int64(1<<30), grown.CapacityBytes)
	for _, pod := range []string{"p1", "p1", "p2"} {
		_, err := h.s.NodeUnpublishVolume(t.Context(), &csipb.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: h.path("pods", pod, "mount")})
		wantCode(t, "unpublish", err, codes.OK)
	}
	for range 2 {
		wantCode(t, "unstage", h.unstage(t, h.s), codes.OK)
	}
	assert.Empty(t, h.mounts(), "left mounted")
	assert.NoDirExists(t, h.path("staging"))
	assert.NoDirExists(t, h.path("pods", "p2", "mount"))
	assert.Equal(t, []string{
		"mount 10.0.0.1:/pvc-1 vers=4.2,noresvport,softerr,timeo=300,retrans=5,addr=10.0.0.1,clientaddr=10.9.0.2",
		"unmount pods/p1/mount", "unmount pods/p2/mount", "unmount staging",
	}, h.nfs.calls)
}

func TestMountOptionsOfAShare(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(h *sharedHost)
		code   codes.Code
		text   string
		want   string // staged and published; empty: neither
	}{
		{"an address of version 6 → in brackets", func(h *sharedHost) { h.endpoint = "nfs://[fd00::1]/pvc-1" }, codes.OK, "", "[fd00::1]:/pvc-1 nfs4 101"},
		{"options of the class → they alone", func(h *sharedHost) { h.context = map[string]string{"nfsOptions": "vers=4.1,hard"} }, codes.OK, "", first},
		{"many nodes that read → published read-only", func(h *sharedHost) { h.as = capabilityOf(multiReader, "") }, codes.OK, "", first + " ro"},
		{"one node → the same", func(h *sharedHost) { h.as = capabilityOf(writer, "xfs") }, codes.OK, "", first},
		{"options of version 3 → refused", func(h *sharedHost) { h.context = map[string]string{"nfsOptions": "vers=3"} }, codes.InvalidArgument, "parameter nfsOptions", ""},
		{"another volume's share → refused", func(h *sharedHost) { h.endpoint = "nfs://10.0.0.1/pvc-2" }, codes.InvalidArgument, "must be nfs://<address>/pvc-1", ""},
		{"a name for an address → refused", func(h *sharedHost) { h.endpoint = "nfs://share/pvc-1" }, codes.InvalidArgument, "must contain an IP address", ""},
		{"another protocol → refused", func(h *sharedHost) { h.endpoint = "nbd://10.0.0.1/pvc-1" }, codes.InvalidArgument, "must be nfs://", ""},
		{"a block volume → refused", func(h *sharedHost) { h.as = blockOf(writer) }, codes.InvalidArgument, "no block devices", ""},
		{"the server takes no connection → later", func(h *sharedHost) { h.nfs.refuse["connect"] = syscall.ECONNREFUSED }, codes.Unavailable, "cannot be reached: connection refused", ""},
		{
			"the kernel has no client → said", func(h *sharedHost) {
				h.nfs.refuse["mount"], h.nfs.refuse["load"] = syscall.ENODEV, errors.New("modprobe: no module")
			},
			codes.FailedPrecondition, "this node's kernel has no NFS client (module nfsv4): no such device: modprobe: no module", "",
		},
		{"the server refuses → said", func(h *sharedHost) { h.nfs.refuse["mount"] = syscall.EACCES }, codes.Internal, "permission denied", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newSharedHost(t)
			c.change(h)
			err := h.stage(t)
			wantCode(t, "stage", err, c.code)
			checkError(t, err, c.text)
			if c.want == "" {
				assert.Empty(t, h.mounts())
				return
			}
			wantCode(t, "publish", h.publish(t, "p1", false), codes.OK)
			assert.Equal(t, map[string]string{"staging": strings.TrimSuffix(c.want, " ro"), "pods/p1/mount": c.want}, h.mounts())
		})
	}
}

func TestAShareIsMountedOnlyWithTheOptionsOfItsClass(t *testing.T) {
	h := newSharedHost(t)
	h.context = map[string]string{"nfsOptions": "vers=4.1,hard"}
	// nouuid applies to xfs on the device; noexec to pods.
	h.as.GetMount().MountFlags = []string{"nouuid", "noexec"}
	wantCode(t, "stage", h.stage(t), codes.OK)
	assert.Equal(t, []string{"mount 10.0.0.1:/pvc-1 vers=4.1,hard,addr=10.0.0.1,clientaddr=10.9.0.2"}, h.nfs.calls)
}

func TestStageAShareAgain(t *testing.T) {
	stale := func(h *sharedHost) { h.nfs.silent(syscall.ESTALE) }
	silent := func(h *sharedHost) { h.nfs.silent(syscall.ETIMEDOUT) }
	moved := func(h *sharedHost) { h.endpoint = "nfs://10.0.0.2/pvc-1" }
	for _, c := range []struct {
		name      string
		published bool
		change    func(h *sharedHost)
		code      codes.Code
		want      map[string]string
		calls     int
	}{
		{"it answers → it stays", true, func(*sharedHost) {}, codes.OK, map[string]string{"staging": first, "pods/p1/mount": first}, 0},
		{"the server does not have it → replaced, though a pod has it", true, stale, codes.OK, map[string]string{"staging": second, "pods/p1/mount": first}, 2},
		{"another address → replaced", true, moved, codes.OK, map[string]string{"staging": "10.0.0.2:/pvc-1 nfs4 102", "pods/p1/mount": first}, 2},
		{"no answer, no pod → replaced", false, silent, codes.OK, map[string]string{"staging": second}, 2},
		{"no answer, but pods wait for one → it stays, and comes back later", true, silent, codes.Unavailable, map[string]string{"staging": first, "pods/p1/mount": first}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := stagedShare(t, c.published)
			c.change(h)
			wantCode(t, "stage", h.stage(t), c.code)
			assert.Equal(t, c.want, h.mounts())
			assert.Len(t, h.nfs.calls, c.calls)
			if c.calls > 0 {
				assert.Equal(t, "force staging", h.nfs.calls[0])
			}
		})
	}
}

func TestPublishStagesAStaleShareAgain(t *testing.T) {
	h := stagedShare(t, true)
	h.nfs.silent(syscall.ESTALE)
	wantCode(t, "publish to a second pod", h.publish(t, "p2", false), codes.OK)
	wantCode(t, "publish to the first", h.publish(t, "p1", false), codes.OK)
	assert.Equal(t, map[string]string{"staging": second, "pods/p1/mount": second, "pods/p2/mount": second}, h.mounts())
}

func TestAPodGetsTheShareAsItIsPublishedNow(t *testing.T) {
	h := stagedShare(t, true)
	wantCode(t, "publish read-only", h.publish(t, "p1", true), codes.OK)
	assert.Equal(t, map[string]string{"staging": first, "pods/p1/mount": first + " ro"}, h.mounts())
}

// A pod's writes to the directory beneath a mount would be lost for the other pods.
func TestPublishRefusesWhatIsNotTheShare(t *testing.T) {
	t.Run("nothing is mounted, though there is a directory → refused", func(t *testing.T) {
		h := newSharedHost(t)
		require.NoError(t, os.MkdirAll(h.path("staging"), 0o700))
		wantCode(t, "publish", h.publish(t, "p1", false), codes.FailedPrecondition)
		assert.Empty(t, h.mounts())
	})
	t.Run("the bind shows something else → taken off, refused", func(t *testing.T) {
		h := stagedShare(t, false)
		h.nfs.bindsNothing = true
		wantCode(t, "publish", h.publish(t, "p1", false), codes.Internal)
		assert.Equal(t, map[string]string{"staging": first}, h.mounts())
	})
}

func TestUnmountShare(t *testing.T) {
	busy := func(h *sharedHost) { h.nfs.refuse["unmount"] = syscall.EBUSY }
	for _, c := range []struct {
		name   string
		change func(h *sharedHost)
		code   codes.Code
		calls  []string
	}{
		{"it answers → unmounted, so that all is written", func(*sharedHost) {}, codes.OK, []string{"unmount pods/p1/mount", "unmount staging"}},
		{"it answers and is in use → refused", busy, codes.Internal, []string{"unmount pods/p1/mount", "unmount staging"}},
		{"no answer → detached, without an error for other pods", func(h *sharedHost) { h.nfs.silent(syscall.ETIMEDOUT) }, codes.OK, []string{"detach pods/p1/mount", "detach staging"}},
		{"no answer and in use → detached", func(h *sharedHost) { busy(h); h.nfs.silent(syscall.EIO) }, codes.OK, []string{"detach pods/p1/mount", "detach staging"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := stagedShare(t, true)
			c.change(h)
			wantCode(t, "unpublish", h.unpublish(t, h.s), c.code)
			wantCode(t, "unstage", h.unstage(t, h.s), c.code)
			assert.Equal(t, c.calls, h.nfs.calls)
			_, err := os.Lstat(h.path("staging"))
			assert.Equal(t, c.code == codes.OK, errors.Is(err, os.ErrNotExist), "the staging directory: %v", err)
		})
	}
}

func TestUnstagingAShareLeavesWhatLiesBelow(t *testing.T) {
	h := stagedShare(t, false)
	require.NoError(t, os.WriteFile(h.path("staging", "file"), []byte("precious"), 0o600))
	wantCode(t, "unstage", h.unstage(t, h.s), codes.Internal)
	assert.FileExists(t, h.path("staging", "file"))
}

func TestAVolumeWhoseAccessModeWasChangedIsStagedAsItIsNow(t *testing.T) {
	fsys := capabilityOf(writer, "ext4")
	t.Run("shared now → the device's mount goes, and the device is not touched", func(t *testing.T) {
		h := newSharedHost(t)
		h.attach("pvc-1", 7)
		wantCode(t, "stage the device", h.host.stage(h.s, "pvc-1", fsys), codes.OK)
		delete(h.numbers, h.device("pvc-1"))
		wantCode(t, "stage the share", h.stage(t), codes.OK)
		assert.Equal(t, map[string]string{"staging": first}, h.mounts())
	})
	t.Run("not shared any more → the share's mount goes", func(t *testing.T) {
		h := stagedShare(t, false)
		h.attach("pvc-1", 7)
		wantCode(t, "stage the device", h.host.stage(h.s, "pvc-1", fsys), codes.OK)
		assert.Equal(t, map[string]string{"staging": "pvc-1 ext4"}, h.mounts())
	})
}

func TestASharedVolumeOfOnePodIsRefusedToASecond(t *testing.T) {
	h := newSharedHost(t)
	h.as = capabilityOf(singleWriter, "ext4")
	wantCode(t, "stage", h.stage(t), codes.OK)
	wantCode(t, "publish", h.publish(t, "p1", false), codes.OK)
	wantCode(t, "publish again", h.publish(t, "p1", false), codes.OK)
	wantCode(t, "publish to a second pod", h.publish(t, "p2", false), codes.FailedPrecondition)
}
