package csi

import (
	"fmt"
	"testing"
	"testing/synctest"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
)

func TestControllerExpandVolume(t *testing.T) {
	const larger = 128 << 20
	fsys := capabilityOf(multiWriter, "ext4")
	held := func(reason string) func(*Volume) {
		return func(v *Volume) { v.ExpansionReason, v.ExpansionMessage = reason, "disk d of node n: no" }
	}
	// onLook changes the volume before the controller's nth read of it.
	onLook := func(f *fakeService, n int, change func(v *Volume)) {
		looks := 0
		f.looked = func(f *fakeService, _ string) {
			if looks++; looks == n {
				f.edit(testVolume, change)
			}
		}
	}
	isDone := func(v *Volume) { v.Expanding = false }
	attached, ask := volumeIn("attached", "n1"), "expand pvc-1 134217728"
	cases := []struct {
		name   string
		given  func(f *fakeService)
		as     *csipb.VolumeCapability
		size   int64
		limit  int64
		code   codes.Code
		text   string
		onNode bool
		calls  []string
	}{
		{name: "attached → asked for, waited for, and the node is next", given: func(f *fakeService) { f.edit(testVolume, attached); onLook(f, 5, isDone) }, as: fsys, onNode: true, calls: []string{ask}},
		{name: "detached → what is staged later grows then", given: func(f *fakeService) { f.edit(testVolume, volumeIn("detached", "")); onLook(f, 3, isDone) }, as: fsys, calls: []string{ask}},
		{name: "block → the node has nothing to do", given: func(f *fakeService) { f.edit(testVolume, attached); onLook(f, 3, isDone) }, as: blockOf(writer), calls: []string{ask}},
		{
			name: "shared → its share manager grows the file system",
			given: func(f *fakeService) {
				f.edit(testVolume, attached)
				f.edit(testVolume, func(v *Volume) { v.AccessMode = "rwx" })
				onLook(f, 3, isDone)
			},
			as: capabilityOf(multiNode, "ext4"), calls: []string{ask},
		},
		{name: "it has the size → nothing is asked for", given: func(f *fakeService) { f.edit(testVolume, attached) }, as: fsys, size: 64 << 20, onNode: true},
		{
			name: "asked for by an earlier call → waited for",
			given: func(f *fakeService) {
				f.edit(testVolume, attached)
				f.edit(testVolume, func(v *Volume) { v.Expanding = true })
				onLook(f, 3, isDone)
			},
			as: fsys, size: 64 << 20, onNode: true,
		},
		{
			name:  "no room → taken back, out of range",
			given: func(f *fakeService) { f.edit(testVolume, attached); onLook(f, 3, held("NoRoomToGrow")) },
			as:    fsys, code: codes.OutOfRange, text: "disk d of node n: no", calls: []string{ask, "cancel pvc-1"},
		},
		{
			name: "no room, and it begins after all → aborted",
			given: func(f *fakeService) {
				f.edit(testVolume, attached)
				f.fail["cancel pvc-1"] = ErrConflict
				onLook(f, 3, held("SizeLimit"))
			},
			as: fsys, code: codes.Aborted, calls: []string{ask, "cancel pvc-1"},
		},
		{
			name: "what held up an earlier one is shown for a moment → not believed",
			given: func(f *fakeService) {
				f.edit(testVolume, attached)
				f.edit(testVolume, held("NoRoomToGrow"))
				onLook(f, 4, isDone)
			},
			as: fsys, onNode: true, calls: []string{ask},
		},
		{
			name:  "a node of an earlier release → asked again later",
			given: func(f *fakeService) { f.edit(testVolume, attached); onLook(f, 3, held("NodeCannotGrow")) },
			as:    fsys, code: codes.DeadlineExceeded, text: "disk d of node n: no", calls: []string{ask},
		},
		{
			name: "the manager finds no room → out of range, nothing to take back",
			given: func(f *fakeService) {
				f.edit(testVolume, attached)
				f.fail[ask] = fmt.Errorf("disk d of node n: no: %w", ErrInsufficientStorage)
			},
			as: fsys, code: codes.OutOfRange, text: "disk d of node n: no", calls: []string{ask},
		},
		{name: "no volume → not found", given: func(*fakeService) {}, as: fsys, code: codes.NotFound},
		{name: "being deleted → not found", given: func(f *fakeService) { f.edit(testVolume, volumeIn("deleting", "")) }, as: fsys, code: codes.NotFound},
		{name: "larger than the limit → out of range", given: func(f *fakeService) { f.edit(testVolume, attached) }, as: fsys, size: 2 << 20, limit: 32 << 20, code: codes.OutOfRange},
		{name: "more than ext4 can have → out of range", given: func(f *fakeService) { f.edit(testVolume, attached) }, as: fsys, size: 17 << 40, code: codes.OutOfRange, text: "an ext4 file system"},
		{name: "refused in this state → aborted", given: func(f *fakeService) { f.edit(testVolume, attached); f.fail[ask] = ErrConflict }, as: fsys, code: codes.Aborted, calls: []string{ask}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService()
				c.given(f)
				if c.size == 0 {
					c.size = larger
				}
				s := &controllerServer{core: coreOver(f)}
				response, err := s.ControllerExpandVolume(t.Context(), &csipb.ControllerExpandVolumeRequest{
					VolumeId: testVolume, VolumeCapability: c.as,
					CapacityRange: &csipb.CapacityRange{RequiredBytes: c.size, LimitBytes: c.limit},
				})
				wantCode(t, "expand", err, c.code)
				assert.Equal(t, c.calls, f.made())
				if err != nil {
					assert.ErrorContains(t, err, c.text)
					return
				}
				assert.Equal(t, c.size, response.CapacityBytes)
				assert.Equal(t, c.onNode, response.NodeExpansionRequired)
			})
		})
	}
}
