package instance

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	protobuf "google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// stateTable has the last state that was read, with the revision in which each entry last changed. So it can tell any
// watcher what differs from the revision that the watcher has, in time that depends on the number of differences and
// not on the number of entries.
//
// It reads lazily: a watcher that is ready to send reads the entries that changed since the last read. A watcher that
// does not send holds nothing in memory, and later sends only the latest state of each entry.
type stateTable struct {
	read    readers
	changes *changes

	mu       sync.Mutex
	revision uint64                     // guarded by mu; 1 or more
	replicas *rows[*proto.ReplicaState] // guarded by mu
	engines  *rows[*proto.EngineState]  // guarded by mu
	disks    []*proto.DiskState         // guarded by mu
}

// readers read the current state. None of them waits for a disk. Every call returns new messages, which no caller
// changes. Lists are ordered by name or path.
type readers struct {
	info     *proto.InfoReply
	replicas func() []*proto.ReplicaState
	replica  func(name string) []*proto.ReplicaState // the entries of a name
	engines  func() []*proto.EngineState
	engine   func(name string) []*proto.EngineState
	disks    func() []*proto.DiskState
}

// whole reads everything.
func (r readers) whole() *proto.State {
	return &proto.State{Info: r.info, Replicas: r.replicas(), Engines: r.engines(), Disks: r.disks()}
}

func newStateTable(read readers, c *changes) *stateTable {
	return &stateTable{
		read: read, changes: c, revision: 1,
		replicas: newRows(read.replicas, read.replica), engines: newRows(read.engines, read.engine),
	}
}

// after reads what changed, and returns the message for a watcher that has a revision; nil if the watcher lacks
// nothing. Revision 0 means that the watcher has nothing. Then the message is a whole state. It is also a whole state
// if the watcher is so late that the table no longer knows which entries were removed since.
func (t *stateTable) after(revision uint64) *proto.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshLocked()
	switch {
	case revision == t.revision:
		return nil
	case revision == 0 || revision < max(t.replicas.forgotten, t.engines.forgotten):
		return &proto.State{
			Info: t.read.info, Replicas: t.replicas.all(), Engines: t.engines.all(), Disks: t.disks, Revision: t.revision,
		}
	}
	s := &proto.State{Disks: t.disks, Revision: t.revision, Since: revision}
	s.Replicas, s.RemovedReplicas = t.replicas.after(revision)
	s.Engines, s.RemovedEngines = t.engines.after(revision)
	return s
}

// refreshLocked reads the entries that changed. The revision grows only if one of them differs.
func (t *stateTable) refreshLocked() {
	changed := t.changes.take()
	next := t.revision + 1
	differs := t.replicas.refresh(changed.all, changed.replicas, next)
	differs = t.engines.refresh(changed.all, changed.engines, next) || differs
	if changed.all {
		if now := t.read.disks(); !slices.EqualFunc(t.disks, now, equal) {
			t.disks, differs = now, true
		}
	}
	if differs {
		t.revision = next
	}
}

// maxRemoved is how many removed names of one kind the table remembers. If there are more, it forgets all except the
// latest. Watchers that have not learned of their removal get a whole state.
const maxRemoved = 1000

// rows has the entries of one kind.
type rows[T entry] struct {
	readAll   func() []T
	readNamed func(name string) []T

	byName    map[string]*row[T]
	order     *list.List // of the rows, by revision
	removed   int        // number of rows without entries
	limit     int        // of removed
	forgotten uint64     // the last revision in which a name was removed that the table has forgotten
}

type entry interface {
	protobuf.Message
	GetName() string
}

// row has the entries of a name. A name may have two for a moment, while an engine takes over the device of a former
// process. It has none if the name was removed.
type row[T entry] struct {
	name     string
	entries  []T
	revision uint64 // of the last change
	place    *list.Element
}

func newRows[T entry](readAll func() []T, readNamed func(string) []T) *rows[T] {
	return &rows[T]{readAll: readAll, readNamed: readNamed, byName: map[string]*row[T]{}, order: list.New(), limit: maxRemoved}
}

// refresh reads the named entries, or all entries. It reports whether one differs; those get the revision.
func (r *rows[T]) refresh(all bool, names map[string]struct{}, revision uint64) (differs bool) {
	if all {
		current := byName(r.readAll())
		for name := range r.byName {
			if _, exists := current[name]; !exists {
				differs = r.set(name, nil, revision) || differs
			}
		}
		for name, entries := range current {
			differs = r.set(name, entries, revision) || differs
		}
	} else {
		for name := range names {
			differs = r.set(name, r.readNamed(name), revision) || differs
		}
	}
	if r.removed > r.limit {
		r.forget(revision)
	}
	return differs
}

// set records the entries of a name, and reports whether they differ from those before.
func (r *rows[T]) set(name string, entries []T, revision uint64) bool {
	of := r.byName[name]
	switch {
	case of == nil && len(entries) == 0 || of != nil && slices.EqualFunc(of.entries, entries, equal):
		return false
	case of == nil:
		of = &row[T]{name: name}
		of.place = r.order.PushBack(of)
		r.byName[name] = of
	case len(of.entries) == 0:
		r.removed--
	}
	if len(entries) == 0 {
		r.removed++
	}
	of.entries, of.revision = entries, revision
	r.order.MoveToBack(of.place)
	return true
}

// forget forgets the names that were removed before a revision. A watcher that has the state before the revision needs
// none of them.
func (r *rows[T]) forget(revision uint64) {
	for name, of := range r.byName {
		if len(of.entries) == 0 && of.revision < revision {
			r.forgotten = max(r.forgotten, of.revision)
			r.order.Remove(of.place)
			delete(r.byName, name)
			r.removed--
		}
	}
}

// after returns the entries that changed after a revision, and the names that have no entry any longer.
func (r *rows[T]) after(revision uint64) (changed []T, removed []string) {
	for at := r.order.Back(); at != nil; at = at.Prev() {
		of := at.Value.(*row[T])
		if of.revision <= revision {
			break
		}
		changed = append(changed, of.entries...)
		if len(of.entries) == 0 {
			removed = append(removed, of.name)
		}
	}
	slices.SortStableFunc(changed, compareNames)
	slices.Sort(removed)
	return changed, removed
}

func (r *rows[T]) all() []T {
	all := make([]T, 0, len(r.byName))
	for _, of := range r.byName {
		all = append(all, of.entries...)
	}
	slices.SortStableFunc(all, compareNames)
	return all
}

func byName[T entry](entries []T) map[string][]T {
	named := make(map[string][]T, len(entries))
	for _, e := range entries {
		named[e.GetName()] = append(named[e.GetName()], e)
	}
	return named
}

func compareNames[T entry](a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) }

func equal[T protobuf.Message](a, b T) bool { return protobuf.Equal(a, b) }
