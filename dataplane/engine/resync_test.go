package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

func TestIsRewritten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		state  membership.State
		source bool
		want   bool
	}{
		{"closed cleanly → no", membership.State{Clean: true, ReadsDisk: true}, false, false},
		{"closed cleanly, of an earlier release → no", membership.State{Clean: true}, false, false},
		{"lost nothing → no", membership.State{CacheKept: true, ReadsDisk: true}, false, false},
		{"lost nothing, the source → no", membership.State{CacheKept: true, ReadsDisk: true}, true, false},
		{"lost nothing as far as an earlier release knows → yes", membership.State{CacheKept: true}, false, true},
		{"the same, the source → yes", membership.State{CacheKept: true}, true, true},
		{"may have lost something → yes", membership.State{ReadsDisk: true}, false, true},
		{"may have lost something, of an earlier release → yes", membership.State{}, false, true},
		{"may have lost something, the source → no", membership.State{ReadsDisk: true}, true, false},
		{"may have lost something, the source, of an earlier release → yes", membership.State{}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, isRewritten(tc.state, tc.source))
		})
	}
}

// After a failed sync, a member of an earlier release may show data that its disk does not have. So equal reads prove
// nothing.
func TestAMemberThatMayHaveLostWritesIsWrittenThoughItReadsEqual(t *testing.T) {
	kept := func(d *disk) { d.cacheKept, d.readsDisk = true, true }
	earlier := func(d *disk) { d.cacheKept, d.readsDisk = true, false } // a release that does not know of the loss
	lost := func(d *disk) { d.readsDisk = false }
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
		{"one is of an earlier release → it is written", kept, earlier, false, map[string]int{"a": 0, "b": 1}},
		{"both are of an earlier release → both are written", earlier, earlier, false, map[string]int{"a": 1, "b": 1}},
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

// Users of a kept device are served again only by an engine that has all their writes, or does not know of a loss.
func TestAKeptDeviceIsNotServedWithoutWhatItsUsersWrote(t *testing.T) {
	kept := func(d *disk) { d.cacheKept = true }
	clean := func(d *disk) { d.clean = true }
	lost := func(d *disk) { d.writesLost, d.readsDisk = true, true }
	unknown := func(*disk) {}
	for _, tc := range []struct {
		name     string
		a, b     func(*disk)
		away     string // name of a replica that does not answer
		unmarked bool
		lost     bool
	}{
		{name: "both have everything → served", a: kept, b: kept},
		{name: "closed in order → served", a: clean, b: clean},
		{name: "one has everything → served, from it", a: lost, b: kept},
		{name: "one was closed in order → served, from it", a: lost, b: clean},
		{name: "both have lost writes → not served", a: lost, b: lost, lost: true},
		{name: "the one that has everything is away → not served", a: lost, b: kept, away: "b", lost: true},
		{name: "the one that has lost writes is away → served", a: lost, b: kept, away: "a"},
		{name: "both have lost writes, and nothing is marked → served: all was flushed", a: lost, b: lost, unmarked: true},
		{name: "it is not known whether one has everything → served, from it", a: lost, b: unknown},
		{name: "nothing is known, as of replicas of an earlier release → served", a: unknown, b: unknown},
	} {
		for _, hasUsers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, has users: %t", tc.name, hasUsers), func(t *testing.T) {
				r := newRig(t, "a", "b")
				r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
				tc.a(r.disk("a"))
				tc.b(r.disk("b"))
				for i, d := range r.disks {
					d.fill(t, byte(i+1), testRegion, testRegion)
				}
				if !tc.unmarked {
					r.disk("a").mark(1)
					r.disk("b").mark(1)
				}
				if tc.away != "" {
					r.disk(tc.away).refuse = errors.New("nobody there")
				}
				users := func(c *Config) { c.HasUsers = hasUsers }
				if !tc.lost || !hasUsers {
					e, _ := r.run(2, users)
					if !tc.unmarked && tc.away == "" {
						r.sameBytes()
					}
					require.NoError(t, e.Stop(t.Context()))
					return
				}
				// The process may exit several times before the device is aborted.
				for generation := int64(2); generation < 4; generation++ {
					e, changed := r.start(generation, users)
					r.serve(e)
					s := r.await(e, changed, "end of the start", settled)
					require.Equal(t, ReasonWritesLost, s.Reason, s.Message)
					assert.Contains(t, s.Message, "replica a was restarted")
					assert.Error(t, e.Backend().Flush(t.Context()))
					require.NoError(t, e.StopForce(t.Context()))
					assert.Equal(t, []int64{1}, r.disk("a").marked(), "a further start must find the same")
					assert.Zero(t, puts(r.disk("b"), testRegion))
					r.recorded = r.api.latest(r.recorded)
				}
				e, _ := r.run(4) // without the device
				require.NoError(t, e.Stop(t.Context()))
			})
		}
	}
}

// If the source fails while the others are made equal to it, they have only a part of its data.
func TestAKeptDeviceIsNotServedWhenTheMemberThatHasEverythingFails(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	r.disk("a").writesLost, r.disk("b").cacheKept = true, true
	for i, d := range r.disks {
		d.fill(t, byte(i+1), testRegion, testRegion)
		d.mark(1)
	}
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Err: nbd.EIO})
	e, changed := r.start(2, func(c *Config) { c.HasUsers = true })
	r.serve(e)
	s := r.await(e, changed, "end of the start", settled)
	assert.Equal(t, ReasonWritesLost, s.Reason, s.Message)
	require.NoError(t, e.StopForce(t.Context()))
}

// puts counts the writes and zeroes that a disk received at an offset.
func puts(d *disk, off int64) (n int) {
	for _, op := range d.io.Ops() {
		if (op.Kind == faulty.Write || op.Kind == faulty.Zero) && op.Off == off {
			n++
		}
	}
	return n
}
