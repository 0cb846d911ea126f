package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// The process serves all volumes of a node, and a replica is at the other end of a connection. So a replica's answers
// must not decide how much memory is used.
func TestAReplicaWhoseStateAsksForTooMuchMemoryIsRefused(t *testing.T) {
	const size = 1 << 44
	for name, spoil := range map[string]func(*disk){
		"regions of one byte":      func(d *disk) { d.region = 1 },
		"regions of no bytes":      func(d *disk) { d.region = 0 },
		"one region too many":      func(d *disk) { d.region = membership.RegionBytes(size) / 2 },
		"an epoch of many members": func(d *disk) { d.epoch = manyMembers() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a")
			d := r.disk("a")
			d.resize(size)
			d.region = membership.RegionBytes(size)
			spoil(d)
			e, changed := r.start(1, func(c *Config) { c.SizeBytes = size })
			r.serve(e)
			s := r.await(e, changed, "end of the start", settled)
			assert.Equal(t, PhaseError, s.Phase)
			assert.Equal(t, ReasonMemberMismatch, s.Reason)
		})
	}
}

func manyMembers() membership.Epoch {
	names := make([]string, 0, maxStateBytes/8)
	for i := range cap(names) {
		names = append(names, strings.Repeat("m", 1+i%60))
	}
	return membership.Epoch{Generation: 1, Counter: 1, Members: names}
}

// A replica that shows a new size must not make the engine count more regions than a replica has.
func TestNoVolumeGrowsToMoreRegionsThanAReplicaHas(t *testing.T) {
	r := newRig(t, "a")
	r.disk("a").resize(1 << 50)
	e, _ := r.run(1)
	before := e.mirror.regions.count()
	assert.ErrorContains(t, e.Expand(t.Context(), "s1", 1<<50), "regions")
	assert.Equal(t, before, e.mirror.regions.count())
	assert.EqualValues(t, testSize, e.mirror.size.Load())
}

// scattered answers questions about holes with parts that no disk has.
type scattered struct {
	*session
	part int64
}

func (s scattered) Extents(_ context.Context, off, length int64) ([]nbd.Extent, error) {
	var parts []nbd.Extent
	for end := off + min(length, 1024*s.part); off < end; off += s.part {
		parts = append(parts, nbd.Extent{Offset: off, Length: min(s.part, end-off), Flags: nbd.ExtentFlags(3 * (off / s.part % 2))})
	}
	return parts, nil
}

func TestHolesSmallerThanASectorAreNotBelieved(t *testing.T) {
	for part, refused := range map[int64]bool{1: true, 511: true, 513: true, 512: false, 4096: false} {
		r := newRig(t, "a")
		r.wrap = func(_ *disk, s *session) Replica { return scattered{session: s, part: part} }
		e, _ := r.run(1)
		extents, err := e.Backend().Extents(t.Context(), 0, testSize)
		if refused {
			require.ErrorIs(t, err, nbd.EIO, "parts of %d bytes", part)
		} else {
			require.NoError(t, err)
			assert.EqualValues(t, part, slices.MinFunc(extents, func(a, b nbd.Extent) int { return int(a.Length - b.Length) }).Length)
		}
	}
}
