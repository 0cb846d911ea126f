package engine

import "github.com/longhorn-lep/longhorn-manager/dataplane/nbd"

// copySource is the source from which a copier reads the data that its target lacks. The caller has locked the range.
type copySource interface {
	// extents returns which parts of a range are holes. It may omit holes, and cover less than the range.
	extents(off, length int64) ([]nbd.Extent, error)
	// isHole reports whether all of a range is a hole. It may return false for a hole.
	isHole(off, length int64) bool
	// read fills buf. errDropped means that the disk keeps buf, which must not be used again; another disk may answer.
	read(buf []byte, off int64) error
}

// members is the volume as users see it: the member that is read first, and another member if that one fails.
type members struct{ mirror *mirror }

func (m members) first() *member {
	ro := m.mirror.roster.Load()
	return ro.serving[ro.primary]
}

func (m members) extents(off, length int64) ([]nbd.Extent, error) {
	return m.mirror.extents(m.first(), off, length)
}

func (m members) isHole(off, length int64) bool {
	return m.mirror.isZeroEverywhere([]*member{m.first()}, off, length)
}

// read reads as a user would, except for a read that hangs in a local disk. When the replica is expelled for the
// hanging read, read leaves the request behind, together with the buffer.
func (m members) read(buf []byte, off int64) error {
	return m.first().unlessStuck(func() error { return m.mirror.read(buf, off, nil, nil) })
}
