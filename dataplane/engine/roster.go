package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// roster records which members take part in the data path at one moment. It is never changed. Another roster replaces
// it, under Engine.mu, so its address shows whether anything has changed.
//
//	AddReplica       copied, flushed, proposed        failed, removed, slow        epoch without it in force
//	---------> joining -----------------------> serving ---------------> leaving ----------------------> (left)
//	              '------ failed, removed, slow ---------------------------------------------------------> (left)
//
// Every change goes to the serving members and to the joining member. It is not acknowledged while a leaving member
// lacks it.
type roster struct {
	// serving has the members of the epoch in force, or proposed, that have not failed, ordered by name.
	serving []*member
	leaving []*member // failed, but an epoch in force, or proposed, lists them
	joining *member   // being rebuilt; nil if none
	// flushJoining means that the joining member takes part in flushes: its copy is complete.
	flushJoining bool
	primary      int // index in serving of the preferred member for reads: the local one, else the first
}

// newRoster completes a roster.
func newRoster(r roster) *roster {
	slices.SortFunc(r.serving, func(a, b *member) int { return compareNames(a.name, b.name) })
	r.primary = max(0, slices.IndexFunc(r.serving, func(m *member) bool { return m.local }))
	return &r
}

// without returns the roster after a serving or joining member has failed.
func (r *roster) without(m *member) *roster {
	next := *r
	if r.joining == m {
		next.joining, next.flushJoining = nil, false
		return newRoster(next)
	}
	next.serving = slices.DeleteFunc(slices.Clone(r.serving), func(o *member) bool { return o == m })
	next.leaving = append(slices.Clone(r.leaving), m)
	return newRoster(next)
}

// withoutLeft returns the roster without the leaving members that an epoch does not list, and these members.
func (r *roster) withoutLeft(epoch membership.Epoch) (next *roster, gone []*member) {
	n := *r
	n.leaving = nil
	for _, m := range r.leaving {
		if epoch.Has(m.name) {
			n.leaving = append(n.leaving, m)
		} else {
			gone = append(gone, m)
		}
	}
	n.serving = slices.Clone(r.serving)
	return newRoster(n), gone
}

// promoted returns the roster in which the joining member serves.
func (r *roster) promoted() *roster {
	next := *r
	next.serving = append(slices.Clone(r.serving), r.joining)
	next.joining, next.flushJoining = nil, false
	return newRoster(next)
}

// role returns the role of a member.
func (r *roster) role(m *member) membership.Role {
	switch {
	case r.joining == m:
		return membership.Joining
	case slices.Contains(r.serving, m):
		return membership.Serving
	case slices.Contains(r.leaving, m):
		return membership.Leaving
	}
	return membership.Left
}

func (r *roster) find(name string) *member {
	for _, m := range slices.Concat(r.serving, r.leaving) {
		if m.name == name {
			return m
		}
	}
	if r.joining != nil && r.joining.name == name {
		return r.joining
	}
	return nil
}

// member is an open replica.
type member struct {
	Replica
	spec       Member
	name       string
	local      bool        // reached by direct call: its requests cannot be ended early
	async      asyncWriter // nil if the replica has no WriteAsync
	readErrors atomic.Int64
	hanging    atomic.Int32 // number of its reads that take long; new reads go to other members

	isBeingAsked atomic.Bool // the engine is asking it whether it has admitted a higher generation
	// question has one place: the question whether the generation is in force is under way.
	question chan struct{}
	dropOnce sync.Once
	dropped  chan struct{} // closed when it has failed: then the connection must be closed
	gone     chan struct{} // closed when no epoch lists it any longer; under Engine.mu
}

func newMember(spec Member, r Replica) *member {
	m := &member{Replica: r, spec: spec, name: spec.Name, local: spec.Local, question: make(chan struct{}, 1), dropped: make(chan struct{}), gone: make(chan struct{})}
	m.async, _ = r.(asyncWriter)
	return m
}

func (m *member) drop() { m.dropOnce.Do(func() { close(m.dropped) }) }

func (m *member) isDropped() bool { return isClosed(m.dropped) }

// isLost reports whether the connection has ended.
func (m *member) isLost() bool { return isClosed(m.Done()) }

// lostError returns the reason why the connection has ended, if the replica tells it.
func (m *member) lostError() error {
	if r, ok := m.Replica.(interface{ Err() error }); ok {
		if err := r.Err(); err != nil {
			return fmt.Errorf("the connection to it was lost: %w", err)
		}
	}
	return errors.New("the connection to it was lost")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// errNoVerdict wraps an error that says nothing about a member: it has not failed, and it has not done the work for which
// the other members may need longer.
var errNoVerdict = errors.New("the request was refused")

// onServing runs do for every serving member concurrently and returns when all are done. A member for which do returns
// an error has failed as a member, except with errNoVerdict. So has a member that makes the others wait too long.
func (m *mirror) onServing(ro *roster, do func(b *member) error) error {
	errs := make([]error, len(ro.serving))
	var peers peerRequests
	var wg sync.WaitGroup
	for i, b := range ro.serving {
		wg.Go(func() {
			w := m.watchdog.watchPeer(&peers, b)
			errs[i] = b.unlessStuck(func() error { return do(b) })
			switch {
			case errs[i] == nil:
				m.watchdog.peerAnswered(&peers)
			case !errors.Is(errs[i], errNoVerdict):
				m.failed(b, errs[i])
			}
			m.watchdog.forgetWait(w)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// unlessStuck runs a request to a member. If the member has failed, and the request hangs in a local disk, unlessStuck
// leaves the request behind, because nothing can end it. For a remote member, the connection is closed, which ends its
// requests.
func (m *member) unlessStuck(do func() error) error {
	if !m.local {
		return do()
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-m.dropped:
		return errDropped
	}
}
