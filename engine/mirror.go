package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// mirror is the data path: it gives every change to all members and reads from one.
//
//	change   gate → mark regions → range lock → all members → judge → regions → unlock → gate → answer
//	read     gate → the primary; if it fails: shared range lock → the others
//
// Reads take no lock, because they always go to the same member: what one read has seen of a change under way, a later one sees
// too. Only a read that failed there goes elsewhere, and then under the lock, when no change of its range is under way and all
// members are equal in it.
type mirror struct {
	size    int64
	log     *logrus.Entry
	gate    *gate
	locks   rangeLock
	failed  func(name string, err error) // told of each member that failed; must not block
	members []*member                    // in order of names; fixed before the gate opens
	primary int                          // index of the member that is read and is served by the caller's goroutine
	regions *regions                     // fixed before the gate opens
}

// member is an open replica.
type member struct {
	Replica
	name       string
	async      asyncWriter // nil if the replica has no such way
	readErrors atomic.Int64
}

func newMember(name string, r Replica) *member {
	m := &member{Replica: r, name: name}
	m.async, _ = r.(asyncWriter)
	return m
}

// ending says why the connection has ended, as far as the replica tells.
func (m *member) ending() error {
	if r, ok := m.Replica.(interface{ Err() error }); ok {
		if err := r.Err(); err != nil {
			return fmt.Errorf("its connection has ended: %w", err)
		}
	}
	return errors.New("its connection has ended")
}

var _ nbd.Backend = (*mirror)(nil)

func newMirror(size int64, failed func(string, error), log *logrus.Entry) *mirror {
	return &mirror{size: size, log: log, gate: newGate(), failed: failed}
}

// background is the context of every request to a member: nothing that happens to one user's request may leave a change half done.
var background = context.Background()

// ReadAt implements nbd.Backend.
func (m *mirror) ReadAt(_ context.Context, p []byte, off int64) error {
	if err := m.check(off, int64(len(p)), nbd.EINVAL); err != nil {
		return err
	}
	return m.read(off, int64(len(p)), func(r Replica) error { return r.ReadAt(background, p, off) })
}

// Extents implements nbd.Backend. What it says is as old as any answer under concurrent changes.
func (m *mirror) Extents(_ context.Context, off, length int64) (extents []nbd.Extent, err error) {
	if err := m.check(off, length, nbd.EINVAL); err != nil {
		return nil, err
	}
	err = m.read(off, length, func(r Replica) (err error) {
		extents, err = r.Extents(background, off, length)
		return err
	})
	return extents, err
}

// read asks the primary and, if that fails, the others.
func (m *mirror) read(off, length int64, ask func(Replica) error) error {
	if err := m.gate.enter(); err != nil {
		return err
	}
	err := ask(m.members[m.primary])
	if err != nil {
		err = m.readElsewhere(off, length, err, ask)
	}
	if failed := m.gate.leave(); failed != nil {
		return failed
	}
	return err
}

// readElsewhere asks the members other than the primary. Where healthy members may differ nobody else is asked: two reads could
// answer differently.
func (m *mirror) readElsewhere(off, length int64, err error, ask func(Replica) error) error {
	m.members[m.primary].readErrors.Add(1)
	s := m.locks.lock(off, length, shared)
	defer m.locks.unlock(s)
	if m.regions.isUneven(off, length) {
		return fmt.Errorf("read from %s: %w", m.members[m.primary].name, nbd.EIO)
	}
	for i, b := range m.members {
		if i == m.primary {
			continue
		}
		again := ask(b)
		if again == nil {
			m.log.WithError(err).WithFields(logrus.Fields{"replica": m.members[m.primary].name, "source": b.name, "offset": off}).
				Warn("A read failed on one replica and was answered by another")
			return nil
		}
		b.readErrors.Add(1)
		err = fmt.Errorf("%w; replica %s: %w", err, b.name, again)
	}
	m.log.WithError(err).WithField("offset", off).Error("A read failed on every replica")
	return fmt.Errorf("read from every replica: %w", nbd.EIO)
}

// WriteAt implements nbd.Backend.
func (m *mirror) WriteAt(_ context.Context, p []byte, off int64, fua bool) error {
	return m.change(request{kind: kindWrite, data: p, off: off, length: int64(len(p)), fua: fua})
}

// Trim implements nbd.Backend. A replica may do with a trim what it likes, and replicas may like differently; so the members are
// asked for zeroes, which they may store as holes. After a trim the range reads as zeroes.
func (m *mirror) Trim(_ context.Context, off, length int64, fua bool) error {
	return m.change(request{kind: kindZero, off: off, length: length, fua: fua})
}

// Zero implements nbd.Backend.
func (m *mirror) Zero(_ context.Context, off, length int64, flags nbd.ZeroFlags) error {
	return m.change(request{kind: kindZero, off: off, length: length, fua: flags&nbd.ZeroFUA != 0, noHole: flags&nbd.ZeroNoHole != 0})
}

// change gives r to all members. The regions are marked before the lock is taken and again before it is given back: see regions.
func (m *mirror) change(r request) error {
	if err := m.check(r.off, r.length, nbd.ENOSPC); err != nil {
		return err
	}
	if err := m.gate.enter(); err != nil {
		return err
	}
	m.regions.begin(r.off, r.length)
	s := m.locks.lock(r.off, r.length, exclusive)
	v := m.fan(r)
	m.regions.end(r.off, r.length, v.uneven)
	m.locks.unlock(s)
	if failed := m.gate.leave(); failed != nil {
		return failed
	}
	return v.err
}

// Flush implements nbd.Backend.
func (m *mirror) Flush(context.Context) error {
	if err := m.gate.enter(); err != nil {
		return err
	}
	v := m.fan(request{kind: kindFlush})
	if failed := m.gate.leave(); failed != nil {
		return failed
	}
	return v.err
}

// check refuses a range that is not in the volume.
func (m *mirror) check(off, length int64, beyond nbd.Errno) error {
	switch {
	case off < 0 || length <= 0 || off > math.MaxInt64-length:
		return &nbd.Error{Errno: nbd.EINVAL, Msg: fmt.Sprintf("range of %d bytes at %d", length, off)}
	case off+length > m.size:
		return &nbd.Error{Errno: beyond, Msg: fmt.Sprintf("range of %d bytes at %d, past the end at %d", length, off, m.size)}
	}
	return nil
}
