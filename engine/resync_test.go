package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd/faulty"
)

func TestIsRewritten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		state  membership.State
		source bool
		want   bool
	}{
		{"closed cleanly → no", membership.State{Clean: true}, false, false},
		{"lost nothing → no", membership.State{CacheKept: true}, false, false},
		{"lost nothing, the source → no", membership.State{CacheKept: true}, true, false},
		{"may have lost something → yes", membership.State{}, false, true},
		{"may have lost something, reads its disk → yes", membership.State{ReadsDisk: true}, false, true},
		{"may have lost something, the source, reads its disk → no", membership.State{ReadsDisk: true}, true, false},
		{"may have lost something, the source, of an earlier release → yes", membership.State{}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, isRewritten(tc.state, tc.source))
		})
	}
}

// What a member of an earlier release shows after a failed sync its disk may not have. So that it reads as the source does says nothing.
func TestAMemberThatMayHaveLostWritesIsWrittenThoughItReadsEqual(t *testing.T) {
	kept := func(d *disk) { d.cacheKept = true }
	lost := func(*disk) {}
	readsDisk := func(d *disk) { d.readsDisk = true }
	for _, tc := range []struct {
		name  string
		a, b  func(*disk)
		holes bool
		want  map[string]int // writes, or zeroes of holes
	}{
		{"one has lost nothing → the other is written", kept, lost, false, map[string]int{"a": 0, "b": 1}},
		{"one has lost nothing → the hole of the other is made again", kept, lost, true, map[string]int{"a": 0, "b": 1}},
		{"both have lost nothing → none is written", kept, kept, false, map[string]int{"a": 0, "b": 0}},
		{"both may have lost something → both are written", lost, lost, false, map[string]int{"a": 1, "b": 1}},
		{"both may have lost something, the source reads its disk → the other is written", readsDisk, lost, false, map[string]int{"a": 0, "b": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
			tc.a(r.disk("a"))
			tc.b(r.disk("b"))
			for _, d := range r.disks {
				if !tc.holes {
					d.fill(t, 7, testRegion, testRegion)
				}
			}
			r.disk("a").mark(1)
			e, _ := r.run(2)
			for _, d := range r.disks {
				assert.Equal(t, tc.want[d.name], puts(d, testRegion), d.name)
				assert.Zero(t, puts(d, 0), "%s was written where nothing was marked", d.name)
			}
			r.expectMarks(nil)
			require.NoError(t, e.Stop(t.Context()))
		})
	}
}

func TestTheOnlyMemberOfAnEarlierReleaseIsWrittenWhatItReads(t *testing.T) {
	for _, readsDisk := range []bool{false, true} {
		r := newRig(t, "a")
		r.recorded = membership.NewEpoch(1, 1, []string{"a"})
		d := r.disk("a")
		d.readsDisk = readsDisk
		d.fill(t, 7, testRegion, testRegion)
		d.mark(1)
		e, _ := r.run(2)
		want := 1
		if readsDisk {
			want = 0
		}
		assert.Equal(t, want, puts(d, testRegion), "reads its disk: %t", readsDisk)
		assert.Equal(t, pattern(7, testRegion), d.bytes(t, testRegion, testRegion))
		require.NoError(t, e.Stop(t.Context()))
	}
}

// puts counts the writes and zeroes that a disk got at an offset.
func puts(d *disk, off int64) (n int) {
	for _, op := range d.io.Ops() {
		if (op.Kind == faulty.Write || op.Kind == faulty.Zero) && op.Off == off {
			n++
		}
	}
	return n
}
