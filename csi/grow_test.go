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

// growable is a host whose devices hold an ext4; it keeps the commands that grow file systems.
type growable struct {
	*host
	grown  []string
	refuse error
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
						return nil, nil, g.refuse
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

// The device of a host has 64 MiB.
func TestNodeExpandVolume(t *testing.T) {
	fsys, refused := capabilityOf(multiWriter, "ext4"), &testingexec.FakeExitError{Status: 1}
	cases := []struct {
		name     string
		given    func(t *testing.T, g *growable, s *nodeServer)
		as       *csipb.VolumeCapability
		required int64
		code     codes.Code
		grown    int
	}{
		{name: "staged → the file system grows", given: isStaged, as: fsys, required: 64 << 20, grown: 1},
		{name: "no size asked for → it grows as well", given: isStaged, as: fsys, grown: 1},
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
		{name: "the tool fails → internal", given: func(t *testing.T, g *growable, s *nodeServer) { isStaged(t, g, s); g.refuse = refused }, as: fsys, code: codes.Internal, grown: 1},
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
			assert.Len(t, g.grown, 2*c.grown)
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
	isStaged(t, g, s) // its data is there
}

func TestStageLeavesAReadOnlyFileSystem(t *testing.T) {
	g, s := newGrowable(t)
	g.attach("pvc-1", 7)
	c := capabilityOf(multiWriter, "ext4")
	c.GetMount().MountFlags = []string{"ro"}
	wantCode(t, "stage", g.stage(s, "pvc-1", c), codes.OK)
	assert.Empty(t, g.grown)
}
