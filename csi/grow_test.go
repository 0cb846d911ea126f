package csi

import (
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	utilexec "k8s.io/utils/exec"
	testingexec "k8s.io/utils/exec/testing"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// growable is a host with an ext4 on its devices; it records the commands that grow file systems.
type growable struct {
	*host
	grown  []string
	refuse error
	// onlyOffline refuses to grow a mounted file system, like a kernel without CAP_SYS_RESOURCE.
	onlyOffline bool
	// checks are the e2fsck calls; damaged is their result.
	checks  []string
	damaged error
	// onGrow is called while a file system grows.
	onGrow func()
}

func newGrowable(t *testing.T) (*growable, *nodeServer) {
	g := &growable{host: newHost(t)}
	fake := &testingexec.FakeExec{}
	for range 64 {
		fake.CommandScript = append(fake.CommandScript, func(cmd string, args ...string) utilexec.Cmd {
			return testingexec.InitFakeCmd(&testingexec.FakeCmd{
				CombinedOutputScript: []testingexec.FakeAction{func() ([]byte, []byte, error) {
					if cmd == "blkid" {
						return []byte("TYPE=ext4\n"), nil, nil
					}
					if cmd == "resize2fs" {
						g.grown = append(g.grown, strings.Join(args, " "))
						if g.onGrow != nil {
							g.onGrow()
						}
						if g.onlyOffline && len(g.mounter.MountPoints) > 0 {
							return []byte("Permission denied"), nil, &testingexec.FakeExitError{Status: 1}
						}
						return nil, nil, g.refuse
					}
					if cmd == "e2fsck" {
						g.checks = append(g.checks, strings.Join(args, " "))
						assert.Empty(t, g.mounter.MountPoints, "checked while it is mounted")
						return nil, nil, g.damaged
					}
					return nil, nil, nil
				}},
			}, cmd, args...)
		})
	}
	system := mount.NewWith(g.mounter, fake, g.host)
	return g, &nodeServer{nodeID: "n1", core: &node{mounts: system, devices: g.path("dev"), log: quiet()}}
}

func (g *growable) expand(t *testing.T, s *nodeServer, c *csipb.VolumeCapability, required int64) (int64, error) {
	response, err := s.NodeExpandVolume(t.Context(), &csipb.NodeExpandVolumeRequest{
		VolumeId: "pvc-1", VolumePath: g.path("staging"), StagingTargetPath: g.path("staging"), VolumeCapability: c,
		CapacityRange: &csipb.CapacityRange{RequiredBytes: required},
	})
	return response.GetCapacityBytes(), err
}

// The devices of a host have 64 MiB.
func TestNodeExpandVolume(t *testing.T) {
	fsys, refused := capabilityOf(multiWriter, "ext4"), &testingexec.FakeExitError{Status: 1}
	cases := []struct {
		name     string
		given    func(t *testing.T, g *growable, s *nodeServer)
		as       *csipb.VolumeCapability
		required int64
		code     codes.Code
		grown    int // number, by both calls
	}{
		{name: "staged → the file system grows", given: isStaged, as: fsys, required: 64 << 20, grown: 2},
		{name: "no size asked for → it grows as well", given: isStaged, as: fsys, grown: 2},
		{name: "the device is smaller still → refused, to be asked again", given: isStaged, as: fsys, required: 66 << 20, code: codes.Unavailable},
		{name: "nothing mounted → not found", given: func(_ *testing.T, g *growable, _ *nodeServer) { g.attach("pvc-1", 7) }, as: fsys, code: codes.NotFound},
		{
			name: "attached anew as another device → refused, to be asked again",
			given: func(t *testing.T, g *growable, s *nodeServer) {
				isStaged(t, g, s)
				g.mounter.MountPoints[0].Device = "/dev/old"
				g.numbers["/dev/old"] = 7
				g.attach("pvc-1", 8)
			},
			as: fsys, code: codes.Unavailable,
		},
		{name: "it cannot grow → the one code after which the kubelet mounts it all the same", given: func(t *testing.T, g *growable, s *nodeServer) { isStaged(t, g, s); g.refuse = refused }, as: fsys, code: codes.FailedPrecondition, grown: 2},
		{
			name: "its device went away while it grew → refused, to be asked again",
			given: func(t *testing.T, g *growable, s *nodeServer) {
				isStaged(t, g, s)
				g.refuse, g.onGrow = refused, func() {
					g.mu.Lock()
					defer g.mu.Unlock()
					g.numbers["/dev/old"] = 7
					g.mounter.MountPoints[0].Device = "/dev/old"
					g.numbers[g.device("pvc-1")] = 8
				}
			},
			as: fsys, code: codes.Unavailable, grown: 1,
		},
		{name: "block → there is nothing to grow", given: func(_ *testing.T, g *growable, _ *nodeServer) { g.attach("pvc-1", 7) }, as: blockOf(writer), required: 64 << 20},
		{name: "block, still smaller → refused", given: func(_ *testing.T, g *growable, _ *nodeServer) { g.attach("pvc-1", 7) }, as: blockOf(writer), required: 66 << 20, code: codes.Unavailable},
		{name: "block, not attached → refused", given: func(*testing.T, *growable, *nodeServer) {}, as: blockOf(writer), code: codes.Unavailable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g, s := newGrowable(t)
			c.given(t, g, s)
			g.grown = nil
			for range 2 { // it may be repeated
				size, err := g.expand(t, s, c.as, c.required)
				wantCode(t, "expand", err, c.code)
				if err == nil {
					assert.Equal(t, int64(64<<20), size)
				}
			}
			assert.Len(t, g.grown, c.grown)
		})
	}
}

func isStaged(t *testing.T, g *growable, s *nodeServer) {
	t.Helper()
	g.attach("pvc-1", 7)
	wantCode(t, "stage", g.stage(s, "pvc-1", capabilityOf(multiWriter, "ext4")), codes.OK)
}

func TestNodeExpandVolumeOneCallAtATime(t *testing.T) {
	g, s := newGrowable(t)
	isStaged(t, g, s)
	unlock, ok := s.locks.tryLock("pvc-1")
	require.True(t, ok)
	defer unlock()
	_, err := g.expand(t, s, nil, 0)
	wantCode(t, "expand beside another call", err, codes.Aborted)
}

func TestStageGrowsTheFileSystem(t *testing.T) {
	g, s := newGrowable(t)
	isStaged(t, g, s)
	assert.Equal(t, []string{g.device("pvc-1")}, g.grown)
	isStaged(t, g, s)
	assert.Len(t, g.grown, 2, "a call that came to no end is repeated")
	g.refuse = &testingexec.FakeExitError{Status: 1}
	isStaged(t, g, s) // its data is available
	assert.Empty(t, g.checks, "what is staged is not taken off to grow: pods may use it")
}

// If the kernel does not grow an ext4 while it is mounted, it grows unmounted, before a pod uses it.
func TestStageGrowsUnmountedWhatCannotGrowMounted(t *testing.T) {
	exit := func(code int) error { return &testingexec.FakeExitError{Status: code} }
	for _, c := range []struct {
		name   string
		given  func(g *growable)
		fsType string
		grown  int // calls of resize2fs
		checks int
	}{
		{"it is sound → it grows unmounted", func(g *growable) { g.onlyOffline = true }, "ext4", 2, 1},
		{"the check corrects something → it grows", func(g *growable) { g.onlyOffline, g.damaged = true, exit(1) }, "ext4", 2, 1},
		{"the check leaves damage → it stays as it is", func(g *growable) { g.onlyOffline, g.damaged = true, exit(4) }, "ext4", 1, 1},
		{"it cannot grow unmounted either → it stays as it is", func(g *growable) { g.refuse = exit(1) }, "ext4", 2, 1},
		{"it grows mounted → it is not taken off", func(*growable) {}, "ext4", 1, 0},
		{"xfs → it grows mounted only", func(g *growable) { g.onlyOffline = true }, "xfs", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, s := newGrowable(t)
			c.given(g)
			g.attach("pvc-1", 7)
			wantCode(t, "stage", g.stage(s, "pvc-1", capabilityOf(multiWriter, c.fsType)), codes.OK)
			assert.Len(t, g.grown, c.grown)
			assert.Len(t, g.checks, c.checks)
			assert.Len(t, g.mounter.MountPoints, 1, "it is mounted, once")
		})
	}
}

func TestStageLeavesAReadOnlyFileSystem(t *testing.T) {
	g, s := newGrowable(t)
	g.attach("pvc-1", 7)
	c := capabilityOf(multiWriter, "ext4")
	c.GetMount().MountFlags = []string{"ro"}
	wantCode(t, "stage", g.stage(s, "pvc-1", c), codes.OK)
	assert.Empty(t, g.grown)
}
