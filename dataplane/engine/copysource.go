package engine

import "github.com/longhorn-lep/longhorn-manager/dataplane/nbd"

// copySource is where a copier reads what its target lacks. Its caller has locked the range that it asks for.
type copySource interface {
	// extents says which parts of a range are holes. It may leave holes out, and cover less than the range.
	extents(off, length int64) ([]nbd.Extent, error)
	// isHole says whether all of a range is a hole. It may miss that.
	isHole(off, length int64) bool
	// read fills buf. errDropped: the disk that was asked keeps buf, which must not be used again; another one may answer.
	read(buf []byte, off int64) error
}

// members is the volume as users have it: the member that is read from first, and another when that fails.
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

// read reads as a user would, but for a read that hangs in a local disk: that is left behind with the buffer when the replica is expelled for it.
func (m members) read(buf []byte, off int64) error {
	return m.first().unlessStuck(func() error { return m.mirror.read(buf, off, nil, nil) })
}
