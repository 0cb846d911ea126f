package engine

import (
	"sync"
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

type kind int

const (
	kindWrite kind = iota
	kindZero
	kindFlush
)

// request is one change, or a flush, for all members.
type request struct {
	kind        kind
	data        []byte // of a write
	off, length int64  // bytes
	fua, noHole bool
}

// perform does r on one replica.
func (r *request) perform(b nbd.Backend) error {
	switch r.kind {
	case kindWrite:
		return b.WriteAt(background, r.data, r.off, r.fua)
	case kindZero:
		var flags nbd.ZeroFlags
		if r.fua {
			flags |= nbd.ZeroFUA
		}
		if r.noHole {
			flags |= nbd.ZeroNoHole
		}
		return b.Zero(background, r.off, r.length, flags)
	case kindFlush:
		return b.Flush(background)
	}
	panic("BUG: a request of no kind")
}

// fanout is one request on its way to all members. It is reused, with all that hangs on it.
type fanout struct {
	mirror   *mirror
	request  request
	parts    []func(error) // by member: tells the outcome; made once
	outcomes []outcome     // by member; complete when done is signalled
	missing  atomic.Int32  // answers to come
	done     chan struct{}
}

var fanoutPool = sync.Pool{New: func() any { return &fanout{done: make(chan struct{}, 1)} }}

func (m *mirror) newFanout(r request) *fanout {
	f := fanoutPool.Get().(*fanout)
	for i := len(f.parts); i < len(m.members); i++ {
		f.parts = append(f.parts, func(err error) { f.answer(i, err) })
		f.outcomes = append(f.outcomes, broken)
	}
	f.mirror, f.request = m, r
	f.missing.Store(int32(len(m.members)))
	return f
}

// fan sends r to all members side by side and returns when all have answered. The primary is served by this goroutine, last; a
// write to another goes out from here too if its replica can, so that the usual write starts no goroutine.
func (m *mirror) fan(r request) verdict {
	f := m.newFanout(r)
	for i, b := range m.members {
		switch {
		case i == m.primary:
		case r.kind == kindWrite && b.async != nil:
			b.async.WriteAsync(r.data, r.off, r.fua, f.parts[i])
		default:
			go func() { f.answer(i, r.perform(b)) }()
		}
	}
	f.answer(m.primary, r.perform(m.members[m.primary]))
	<-f.done
	v := judge(f.outcomes[:len(m.members)])
	for _, i := range v.failed { // healthy ones too, if they did not do what another did
		m.failed(m.members[i].name, f.outcomes[i].err())
	}
	f.mirror, f.request = nil, request{}
	fanoutPool.Put(f)
	return v
}

// answer takes what one member said. One that failed for sure is reported at once: others might never answer.
func (f *fanout) answer(i int, err error) {
	o := classify(f.request.kind, err)
	f.outcomes[i] = o
	if o == broken {
		f.mirror.failed(f.mirror.members[i].name, err)
	}
	if f.missing.Add(-1) == 0 {
		f.done <- struct{}{}
	}
}

// onAll runs do for every member side by side and returns when all are done. One that fails has failed as a member.
func (m *mirror) onAll(do func(b *member) error) error {
	errs := make([]error, len(m.members))
	var wg sync.WaitGroup
	for i, b := range m.members {
		wg.Go(func() {
			if errs[i] = do(b); errs[i] != nil {
				m.failed(b.name, errs[i])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
