package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// mirror is the data path: it gives every change to all members and reads from one.
//
//	change   gate → mark regions → range lock → all members → judge → (epoch) → regions → unlock → gate → answer
//	read     gate → shared range lock → the primary; if it fails: the others → unlock → gate → answer
//
// Changes hold the lock until they may be acknowledged, and reads take it shared. So a read returns only data that is
// on all members, and it does not matter which member answers it.
type mirror struct {
	size     atomic.Int64 // only grows
	log      *logrus.Entry
	gate     *gate
	locks    rangeLock
	window   window
	watchdog *watchdog
	failed   func(m *member, err error) // called for each member that failed; must not block
	ended    <-chan struct{}            // closed when the engine has ended
	roster   atomic.Pointer[roster]
	regions  *regions // set before the gate opens
}

var (
	_ nbd.Backend    = (*mirror)(nil)
	_ nbd.LateReader = (*mirror)(nil)
)

func newMirror(cfg Config, ended <-chan struct{}, failed func(*member, error)) *mirror {
	m := &mirror{log: cfg.Log, gate: newGate(), failed: failed, ended: ended}
	m.size.Store(cfg.SizeBytes)
	m.watchdog = newWatchdog(cfg.Clock, membership.SlowRule{After: cfg.SlowAfter}, failed, m.locks.unlock)
	m.roster.Store(newRoster(roster{}))
	return m
}

// background is the context of every request to a member: a user's request must never leave a change half done.
var background = context.Background()

// ReadAt implements nbd.Backend. It returns when no disk uses p any longer.
func (m *mirror) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := m.readUser(p, off, nil)
	return err
}

// ReadLate implements nbd.LateReader.
func (m *mirror) ReadLate(_ context.Context, p []byte, off int64, elsewhere func([]byte, error)) (left bool, err error) {
	return m.readUser(p, off, elsewhere)
}

// readUser reads for a user. Suppose a read hangs in a disk of this machine, its replica has been expelled, and
// elsewhere is given. Then the read is left behind in the disk. Another goroutine reads again, into other memory, and
// calls elsewhere with the answer.
func (m *mirror) readUser(p []byte, off int64, elsewhere func([]byte, error)) (left bool, err error) {
	if err := m.check(off, int64(len(p)), nbd.EINVAL); err != nil {
		return false, err
	}
	if err := m.gate.enter(); err != nil {
		return false, err
	}
	if left, err = m.readEntered(p, off, elsewhere); left {
		return true, nil // the other goroutine leaves the gate
	}
	if failed := m.gate.leave(); failed != nil {
		return false, failed
	}
	return false, err
}

// readEntered is readUser within the gate. Without elsewhere it reads again if the range was released in between.
func (m *mirror) readEntered(p []byte, off int64, elsewhere func([]byte, error)) (left bool, err error) {
	var leave func(error)
	if elsewhere != nil {
		leave = func(why error) { m.answerElsewhere(len(p), off, why, elsewhere) }
	}
	for {
		s := m.locks.lock(off, int64(len(p)), shared)
		if err = m.read(p, off, s, leave); !errors.Is(err, errOverdue) {
			m.locks.unlock(s)
			return false, err
		}
		if leave != nil {
			return true, nil
		}
	}
}

// answerElsewhere answers a read of n bytes that was left behind: with why, or, if that is nil, with the result of
// another read.
func (m *mirror) answerElsewhere(n int, off int64, why error, elsewhere func([]byte, error)) {
	got, err := make([]byte, n), why // memory that a disk may still write to serves no other request
	if why == nil {
		var left bool
		if left, err = m.readEntered(got, off, elsewhere); left {
			return // it hangs in another disk
		}
	}
	if failed := m.gate.leave(); failed != nil {
		err = failed
	}
	elsewhere(got, err)
}

// errOverdue means that a read hung in a disk, its replica was expelled for it, and its range was released. Changes of
// the range can continue. So the range must be locked and read again, unless another goroutine does that.
var errOverdue = errors.New("the read is overdue")

// read asks the primary and, if that fails, the other members. The caller holds the lock of the range. s is the range
// of a user's read; it was released if the error is errOverdue. In that case leave was called, if it is not nil.
func (m *mirror) read(p []byte, off int64, s *span, leave func(error)) error {
	ro := m.roster.Load()
	if len(ro.serving) == 1 {
		return ro.serving[0].ReadAt(background, p, off)
	}
	source := ro.primary
	if ro.serving[source].hanging.Load() > 0 {
		source = m.readable(ro, off, int64(len(p)))
	}
	err := m.readFrom(ro.serving[source], nil, p, off, s, leave)
	if err == nil || errors.Is(err, errOverdue) {
		return err
	}
	return m.readElsewhere(p, off, s, leave, ro, source, err)
}

// readFrom asks one member, and the watchdog measures the time. Members that failed the same read before are not
// probed: an answer of theirs for a part of the range makes no other member slow.
func (m *mirror) readFrom(b *member, failed []*member, p []byte, off int64, s *span, leave func(error)) error {
	w := m.watchdog.watchRead(b, failed, off, len(p), s, leave)
	err := b.ReadAt(background, p, off)
	if holds := m.watchdog.forgetWait(w); !holds {
		return errOverdue
	}
	return err
}

// readable returns the first member in which no read hangs, if a read hangs in the primary. So fewer reads get stuck
// before the primary is expelled. If healthy members may differ in the range, it returns the primary.
func (m *mirror) readable(ro *roster, off, length int64) int {
	i := slices.IndexFunc(ro.serving, func(b *member) bool { return b.hanging.Load() == 0 })
	if i < 0 || m.regions.isUnequal(off, length) {
		return ro.primary
	}
	return i
}

// readElsewhere asks the members other than the one that failed. If another member can answer the read, a member that
// failed it has failed as a member. If no member can, the user gets the error. If healthy members may differ in the
// range, no other member is asked, because two reads could have different answers. s and leave are the parameters of
// read.
func (m *mirror) readElsewhere(p []byte, off int64, s *span, leave func(error), ro *roster, source int, err error) error {
	primary := ro.serving[source]
	primary.readErrors.Add(1)
	if m.regions.isUnequal(off, int64(len(p))) && !primary.isLost() {
		return fmt.Errorf("read from replica %s: %w", primary.name, nbd.EIO)
	}
	failed, reasons := []*member{primary}, []error{fmt.Errorf("read %d bytes at offset %d: %w", len(p), off, err)}
	for i, b := range ro.serving {
		if i == source {
			continue
		}
		err = m.readFrom(b, failed, p, off, s, leave)
		if errors.Is(err, errOverdue) {
			return err
		}
		if err == nil {
			for i, f := range failed {
				m.failed(f, reasons[i])
			}
			return nil
		}
		b.readErrors.Add(1)
		failed, reasons = append(failed, b), append(reasons, fmt.Errorf("read %d bytes at offset %d: %w", len(p), off, err))
	}
	m.log.WithError(errors.Join(reasons...)).WithField("offset", off).Error("A read failed on every replica")
	return fmt.Errorf("every replica failed the read: %w", nbd.EIO)
}

// Extents implements nbd.Backend. Under concurrent changes the answer may already be outdated. An error proves nothing
// about a member.
func (m *mirror) Extents(_ context.Context, off, length int64) ([]nbd.Extent, error) {
	if err := m.check(off, length, nbd.EINVAL); err != nil {
		return nil, err
	}
	if err := m.gate.enter(); err != nil {
		return nil, err
	}
	ro := m.roster.Load()
	extents, err := m.extents(ro.serving[ro.primary], off, length)
	for i := 0; err != nil && i < len(ro.serving); i++ {
		extents, err = m.extents(ro.serving[i], off, length)
	}
	if failed := m.gate.leave(); failed != nil {
		return nil, failed
	}
	return extents, err
}

// sectorBytes is the smallest part of a volume that has a state of its own.
const sectorBytes = 512

// extents asks one member about a range. If the member hangs and another can read there, the member is expelled. An
// answer that does not consist of whole sectors is an error, because the caller stores each part, and asks again where
// the answer ends.
func (m *mirror) extents(b *member, off, length int64) ([]nbd.Extent, error) {
	answer := make(chan []nbd.Extent, 1)
	err := m.watchdog.whileProbed(b, off, length, func() error {
		extents, err := b.Extents(background, off, length)
		answer <- extents
		return err
	})
	if err != nil {
		return nil, err
	}
	extents := <-answer
	for _, e := range extents {
		if end := e.Offset + e.Length; end%sectorBytes != 0 && end < off+length {
			return nil, fmt.Errorf("replica %s: an extent of %d bytes at offset %d does not end at a sector boundary: %w", b.name, e.Length, e.Offset, nbd.EIO)
		}
	}
	return extents, nil
}

// check refuses a range that is not within the volume.
func (m *mirror) check(off, length int64, beyond nbd.Errno) error {
	switch size := m.size.Load(); {
	case off < 0 || length <= 0 || off > math.MaxInt64-length:
		return &nbd.Error{Errno: nbd.EINVAL, Msg: fmt.Sprintf("invalid range: %d bytes at offset %d", length, off)}
	case off+length > size:
		return &nbd.Error{Errno: beyond, Msg: fmt.Sprintf("invalid range: %d bytes at offset %d end after the volume's size of %d bytes", length, off, size)}
	}
	return nil
}
