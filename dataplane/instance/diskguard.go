package instance

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// diskLookInterval is how often a disk is looked at when no mount changes and nothing in it is deleted: events may be lost, and for a
// directory above the disk's that was renamed or a UUID file that was written over none comes. A look is a dozen system calls, and a few
// more for each replica, on what the kernel has in memory.
const diskLookInterval = 3 * time.Second

// diskGuard opens replicas on their disks and takes them away when a disk's path does not lead to it any more.
//
//	replica --- holds its files and directory ------------+
//	tenancy --- holds the disk's directory (guardedDisk) -+--> a file system, wherever it is mounted now, if it is
//	path ------ leads to ----------------------------------?
//
// The same looks tell whether a replica's own directory or files were deleted (dirwatch.go brings them about); then that one is lost.
//
// What an open replica writes goes to the file system it holds, never to what a path leads to, so nothing is ever written beneath a
// mount point. The guard is there so that a disk which is gone is known as gone at once, its replicas are expelled while the volume's
// others go on, and the file system is let go.
type diskGuard struct {
	fs    fsys.FS
	every time.Duration
	log   *logrus.Entry

	watchers sync.WaitGroup

	mu    sync.Mutex
	disks map[*guardedDisk]struct{} // guarded by mu; those with tenants, and not lost
	ended bool                      // guarded by mu; await was called, and no more disks are looked at
	dirs  *dirWatch                 // guarded by mu; there while there are disks, unless the kernel has none for us
	// toldAt is when changes of allocated space were last told; guarded by mu.
	toldAt time.Time
}

// guardedDisk is one disk that is held open, with a goroutine that looks at its path. A look that hangs holds up nothing else.
type guardedDisk struct {
	disk   *replica.Disk
	due    chan struct{}         // has an entry when a look is due
	vacant chan struct{}         // closed when the last tenant has gone
	tenant map[*tenancy]struct{} // guarded by the guard's mu
	dirs   *dirWatch             // nil: no events come
	path   string                // of its directory of replicas, to be watched; "" when it is, or cannot be. Used by the goroutine that looks
}

// look makes a look due. It does not wait.
func (d *guardedDisk) look() {
	select {
	case d.due <- struct{}{}:
	default: // one is due already, and has not begun
	}
}

func (d *guardedDisk) held() heldDisk {
	return heldDisk{path: d.disk.Path(), uuid: d.disk.UUID(), id: d.disk.ID()}
}

// tenancy is one open replica on a guarded disk. Its owner must close the replica, then release.
type tenancy struct {
	replica *replica.Replica
	guard   *diskGuard
	disk    *guardedDisk
	watched int32 // descriptor of dirWatch; guarded by the guard's mu; 0: not watched
	// path is of its directory, to be watched; "" when it is, or cannot be. deleted: it was lost for that. Both are used by the goroutine
	// that looks. The path is a descriptor's number, read while that is certainly open; should it be another's by the time it is watched,
	// there are looks for nothing, and the clock.
	path    string
	deleted bool
	// allocated is how much space the data took at the last look, in bytes: to read it waits for no disk. told is its value when changes
	// were told last (tellAllocated); guarded by the guard's mu.
	allocated atomic.Int64
	told      int64
	changed   func()
	// evict is called once, in a goroutine of the guard, after the replica has lost its disk. It closes the replica and releases the
	// tenancy, unless someone else does.
	evict func(*tenancy, *replica.DiskLostError)
}

func newDiskGuard(fs fsys.FS, log *logrus.Entry) *diskGuard {
	return &diskGuard{fs: fs, every: diskLookInterval, log: log, disks: map[*guardedDisk]struct{}{}}
}

// onDisk opens a replica's disk and calls do with it. The disk's UUID file must name the disk.
func (g *diskGuard) onDisk(s *proto.ReplicaSpec, do func(*replica.Disk) error) error {
	d, err := replica.OpenDisk(g.fs, s.GetDiskPath(), s.GetDiskUuid())
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}

// open opens a replica and guards it.
func (g *diskGuard) open(s *proto.ReplicaSpec, opts replica.Options, evict func(*tenancy, *replica.DiskLostError)) (*tenancy, error) {
	d, err := replica.OpenDisk(g.fs, s.GetDiskPath(), s.GetDiskUuid())
	if err != nil {
		return nil, err
	}
	r, err := d.Open(s.GetDirectory(), specOf(s), opts)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	t := &tenancy{replica: r, guard: g, path: r.WatchPath(), evict: evict, changed: opts.OnChange}
	t.measure()
	if g.join(t, d) != d {
		_ = d.Close() // the same directories are held already
	}
	return t, nil
}

// join adds a tenant that was opened through d, and returns what holds its disk from now on: d, unless the disk is guarded already.
func (g *diskGuard) join(t *tenancy, d *replica.Disk) *replica.Disk {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.disk = g.findLocked(d); t.disk == nil {
		t.disk = g.guardLocked(d)
	}
	t.disk.tenant[t] = struct{}{}
	t.disk.look()
	return t.disk.disk
}

func (g *diskGuard) findLocked(d *replica.Disk) *guardedDisk {
	for other := range g.disks {
		if other.held() == (heldDisk{path: d.Path(), uuid: d.UUID(), id: d.ID()}) {
			return other
		}
	}
	return nil
}

// guardLocked begins to look at a disk; the first look is at once, for its path may have changed since it was opened.
func (g *diskGuard) guardLocked(d *replica.Disk) *guardedDisk {
	guarded := &guardedDisk{disk: d, path: d.WatchPath(), due: make(chan struct{}, 1), vacant: make(chan struct{}), tenant: map[*tenancy]struct{}{}}
	g.disks[guarded] = struct{}{}
	if g.ended {
		return guarded // a start that hung until the process ends; it is not looked after, and goes with the process
	}
	guarded.dirs = g.dirsLocked()
	g.watchers.Go(func() { g.watch(guarded) })
	return guarded
}

// dirsLocked is the watch of directories, made for the first disk.
func (g *diskGuard) dirsLocked() *dirWatch {
	if g.dirs != nil {
		return g.dirs
	}
	dirs, err := newDirWatch()
	if err != nil {
		g.log.WithError(err).Warn("Deleted replicas are noticed by the clock alone")
		return nil
	}
	g.dirs = dirs
	g.watchers.Go(func() {
		if err := dirs.read(); err != nil {
			g.log.WithError(err).Warn("Deleted replicas are noticed by the clock alone")
		}
	})
	return dirs
}

// forgetLocked stops guarding a disk.
func (g *diskGuard) forgetLocked(d *guardedDisk) {
	delete(g.disks, d)
	if len(g.disks) == 0 && g.dirs != nil {
		g.dirs.close()
		g.dirs = nil
	}
}

// measure asks the disk how much space the data takes. A replica that cannot tell keeps the number that it had.
func (t *tenancy) measure() {
	if n, err := t.replica.AllocatedBytes(); err == nil {
		t.allocated.Store(n)
	}
}

const (
	// allocatedStep is a change, in bytes, of the space that a replica's data takes that is worth telling.
	allocatedStep = 1 << 20
	// allocatedInterval is the shortest time between two reports of such changes, those of all replicas together.
	allocatedInterval = 30 * time.Second
)

// tellAllocated reports, at most once in allocatedInterval, that the data of replicas takes more space or less.
func (g *diskGuard) tellAllocated(t *tenancy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change := t.allocated.Load() - t.told
	if t.changed == nil || max(change, -change) < allocatedStep || time.Since(g.toldAt) < allocatedInterval {
		return
	}
	g.toldAt = time.Now()
	for d := range g.disks {
		for other := range d.tenant {
			other.told = other.allocated.Load()
		}
	}
	t.changed() // it does not wait
}

// release ends a tenancy, once its replica is closed. The last one lets go of the disk, without the guard's lock: a disk that hangs must
// hold up no other.
func (t *tenancy) release() {
	d := t.guard.leave(t)
	if d == nil {
		return
	}
	if err := d.disk.Close(); err != nil {
		t.guard.log.WithError(err).WithField(logfields.Path, d.disk.Path()).Warn("The disk's directory was not closed in order")
	}
}

// leave removes a tenant, and returns its disk if that is not guarded any more.
func (g *diskGuard) leave(t *tenancy) *guardedDisk {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := t.disk
	if _, in := d.tenant[t]; !in {
		return nil
	}
	delete(d.tenant, t)
	if t.watched != 0 {
		d.dirs.remove(t.watched, d)
	}
	if len(d.tenant) > 0 {
		return nil
	}
	g.forgetLocked(d)
	close(d.vacant)
	return d
}

// lookAll makes a look due at every disk, for mounts have changed. It does not wait.
func (g *diskGuard) lookAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := range g.disks {
		d.look()
	}
}

// watch looks at a disk until it is lost or has no tenant.
func (g *diskGuard) watch(d *guardedDisk) {
	log := g.log.WithField(logfields.Path, d.disk.Path())
	ticker := time.NewTicker(g.every)
	defer ticker.Stop()
	doubtful := false
	for {
		g.listen(d)
		now := replica.LookAtDisk(g.fs, d.disk.Path())
		if lost := judgeDisk(d.held(), now); lost != nil {
			log.WithError(lost).Error("A disk is gone, its replicas serve nothing any more")
			g.lose(d, lost)
			return
		}
		if now.Reason != "" && !doubtful {
			log.WithError(now.Err).Warn("A disk cannot be examined, its replicas go on")
		}
		doubtful = now.Reason != ""
		g.lookAtTenants(d)
		select {
		case <-d.vacant:
			return
		case <-d.due:
		case <-ticker.C:
		}
	}
}

// lose ends the service of all replicas on a disk at once, then closes them, each for itself: what the old disk still has to finish
// holds up only the replica that asked for it.
func (g *diskGuard) lose(d *guardedDisk, lost *replica.DiskLostError) {
	g.mu.Lock()
	g.forgetLocked(d) // no tenancy joins any more
	tenants := slices.Collect(maps.Keys(d.tenant))
	g.mu.Unlock()
	for _, t := range tenants {
		t.replica.Lose(lost)
	}
	var evicting sync.WaitGroup
	for _, t := range tenants {
		evicting.Go(func() { t.evict(t, lost) })
	}
	evicting.Wait()
}

// listen begins to watch directories of a disk that are not watched yet, before the look, so that nothing goes away unseen in between.
func (g *diskGuard) listen(d *guardedDisk) {
	if d.dirs == nil {
		return
	}
	if d.path != "" { // the watch goes with the last disk, or with the directory
		if _, err := d.dirs.add(d.path, d); err != nil {
			g.log.WithError(err).WithField(logfields.Path, d.disk.Path()).Debug("The directory of a disk's replicas is not watched")
		}
		d.path = ""
	}
	for _, t := range g.tenants(d) {
		g.listenTo(t)
	}
}

func (g *diskGuard) listenTo(t *tenancy) {
	if t.path == "" {
		return
	}
	descriptor, err := t.disk.dirs.add(t.path, t.disk)
	t.path = ""
	if err != nil {
		g.log.WithError(err).WithField(logfields.Replica, t.replica.Name()).Debug("A replica's directory is not watched")
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, in := t.disk.tenant[t]; in {
		t.watched = descriptor
		return
	}
	t.disk.dirs.remove(descriptor, t.disk) // it was released meanwhile
}

func (g *diskGuard) tenants(d *guardedDisk) []*tenancy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(d.tenant))
}

// lookAtTenants takes away replicas whose data was deleted under them. No path leads to what they would still write.
func (g *diskGuard) lookAtTenants(d *guardedDisk) {
	for _, t := range g.tenants(d) {
		if t.deleted {
			continue
		}
		t.measure()
		g.tellAllocated(t)
		// An error says nothing of the replica: it was closed, or cannot be examined.
		if lost, err := d.disk.Check(t.replica); err == nil && lost != nil {
			t.deleted = true
			t.replica.Lose(lost)
			g.watchers.Go(func() { t.evict(t, lost) })
		}
	}
}

// await returns when no disk is looked at any more, or when a look has hung for too long. All replicas must be closed.
func (g *diskGuard) await(limit time.Duration) {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	ended := make(chan struct{})
	go func() { // outlives await only when the kernel does not answer
		defer close(ended)
		g.watchers.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(limit):
		g.log.Warn("A look at a disk hangs")
	}
}
