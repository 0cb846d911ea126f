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

// diskLookInterval is how often a disk is checked if no mount changes and nothing in it is deleted. It is needed
// because events may be lost. Also, some changes cause no event: the rename of a directory above the disk's directory,
// and a write to the UUID file. A check makes a dozen system calls, and a few more for each replica, on data that the
// kernel has in memory.
const diskLookInterval = 3 * time.Second

// diskGuard opens replicas on their disks. It closes them when a disk's path no longer leads to the disk.
//
//	replica --- holds its files and directory ------------+
//	tenancy --- holds the disk's directory (guardedDisk) -+--> a file system, wherever it is mounted now, if it is
//	path ------ leads to ----------------------------------?
//
// The same checks show whether a replica's own directory or files were deleted (dirwatch.go causes these checks); then
// that replica is lost.
//
// The writes of an open replica go to the file system that it holds, never to the target of a path. So nothing is ever
// written below a mount point. The guard has three purposes. A missing disk is discovered at once. Its replicas are
// expelled while the volume's other replicas continue. And the file system is released.
type diskGuard struct {
	fs    fsys.FS
	every time.Duration
	log   *logrus.Entry

	watchers sync.WaitGroup

	mu    sync.Mutex
	disks map[*guardedDisk]struct{} // guarded by mu; the disks that have tenants and are not lost
	ended bool                      // guarded by mu; await was called, and no further disks are checked
	// dirs exists while there are disks, unless the kernel refuses to create it. Guarded by mu.
	dirs *dirWatch
	// toldAt is when changes of allocated space were last reported; guarded by mu.
	toldAt time.Time
}

// guardedDisk is one disk that is held open, with a goroutine that checks its path. A check that hangs delays nothing
// else.
type guardedDisk struct {
	disk   *replica.Disk
	due    chan struct{}         // has an entry when a check is due
	vacant chan struct{}         // closed when the last tenant has left
	tenant map[*tenancy]struct{} // guarded by the guard's mu
	dirs   *dirWatch             // nil: no events come
	// path is the path of its directory of replicas, which must be watched. It is "" after the watch was added, or if
	// no watch is possible. Only the checking goroutine uses it.
	path string
}

// look requests a check. It does not wait.
func (d *guardedDisk) look() {
	select {
	case d.due <- struct{}{}:
	default: // one is already due and has not started
	}
}

func (d *guardedDisk) held() heldDisk {
	return heldDisk{path: d.disk.Path(), uuid: d.disk.UUID(), id: d.disk.ID()}
}

// tenancy is one open replica on a guarded disk. Its owner must close the replica, then call release.
type tenancy struct {
	replica *replica.Replica
	guard   *diskGuard
	disk    *guardedDisk
	watched int32 // descriptor of dirWatch; guarded by the guard's mu; 0: not watched
	// path is the path of its directory, which must be watched. It is "" after the watch was added, or if no watch is
	// possible. deleted means that the replica was lost because its files were deleted. The checking goroutine uses
	// both. The path is the number of a descriptor, read while that is certainly open. If the number belongs to another
	// file when the watch is added, there are unnecessary checks, and the interval remains.
	path    string
	deleted bool
	// allocated is how much space the data took at the last check, in bytes: reading it waits for no disk. told is its
	// value when changes were last reported (tellAllocated); guarded by the guard's mu.
	allocated atomic.Int64
	told      int64
	// layers are the layers of a replica of format 2 at the last check; nil for any other replica.
	layers  atomic.Pointer[replica.LayerState]
	changed func() // reports a change of this replica's state; nil if its state is not reported
	// evict is called once, in a goroutine of the guard, after the replica has lost its disk. It closes the replica and
	// releases the tenancy, unless another caller does.
	evict func(*tenancy, *replica.DiskLostError)
}

func newDiskGuard(fs fsys.FS, log *logrus.Entry) *diskGuard {
	return &diskGuard{fs: fs, every: diskLookInterval, log: log, disks: map[*guardedDisk]struct{}{}}
}

// onDisk opens a replica's disk and calls do with it. The disk's UUID file must contain the UUID of the disk.
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
		_ = d.Close() // the same directories are already held
	}
	return t, nil
}

// join adds a tenant that was opened through d. It returns the Disk that is held from now on: d, unless the disk is
// already guarded.
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

// guardLocked starts to check a disk. The first check is at once, because the path may have changed since it was
// opened.
func (g *diskGuard) guardLocked(d *replica.Disk) *guardedDisk {
	guarded := &guardedDisk{disk: d, path: d.WatchPath(), due: make(chan struct{}, 1), vacant: make(chan struct{}), tenant: map[*tenancy]struct{}{}}
	g.disks[guarded] = struct{}{}
	if g.ended {
		// This start hung until the process exits; the disk is not checked, and is released with the process.
		return guarded
	}
	guarded.dirs = g.dirsLocked()
	g.watchers.Go(func() { g.watch(guarded) })
	return guarded
}

// dirsLocked returns the watch of directories; it is created for the first disk.
func (g *diskGuard) dirsLocked() *dirWatch {
	if g.dirs != nil {
		return g.dirs
	}
	dirs, err := newDirWatch()
	if err != nil {
		g.log.WithError(err).Warn("Cannot watch the directories of replicas; only the periodic check finds deleted replicas")
		return nil
	}
	g.dirs = dirs
	g.watchers.Go(func() {
		if err := dirs.read(); err != nil {
			g.log.WithError(err).Warn("Cannot watch the directories of replicas; only the periodic check finds deleted replicas")
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

// measure asks the disk how much space the data takes, and each layer of it. If that fails, the previous numbers stay.
// It reports at once that the points have changed.
func (t *tenancy) measure() {
	if n, err := t.replica.AllocatedBytes(); err == nil {
		t.allocated.Store(n)
	}
	if t.replica.State().FormatVersion < 2 {
		return
	}
	now, err := t.replica.Layers()
	if err != nil {
		return
	}
	if before := t.layers.Swap(&now); t.changed != nil && (before == nil || !samePoints(before.Points, now.Points)) {
		t.changed() // it does not wait
	}
}

func samePoints(a, b []replica.PointState) bool {
	return slices.EqualFunc(a, b, func(a, b replica.PointState) bool { return a.Point == b.Point && a.Flushed == b.Flushed })
}

const (
	// allocatedStep is the smallest change of a replica's allocated space that is reported, in bytes.
	allocatedStep = 1 << 20
	// allocatedInterval is the shortest time between two reports of such changes, for all replicas together.
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
			if now := other.allocated.Load(); now != other.told && other.changed != nil {
				other.told = now
				other.changed() // it does not wait
			}
		}
	}
}

// release ends a tenancy after its replica was closed. The last tenancy closes the disk, without the guard's lock: a
// disk that hangs must delay no other disk.
func (t *tenancy) release() {
	d := t.guard.leave(t)
	if d == nil {
		return
	}
	if err := d.disk.Close(); err != nil {
		t.guard.log.WithError(err).WithField(logfields.Path, d.disk.Path()).Warn("Closing the disk's directory failed")
	}
}

// leave removes a tenant, and returns its disk if that is no longer guarded.
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

// lookAll requests a check of every disk, because mounts have changed. It does not wait.
func (g *diskGuard) lookAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := range g.disks {
		d.look()
	}
}

// watch checks a disk until it is lost or has no tenant.
func (g *diskGuard) watch(d *guardedDisk) {
	log := g.log.WithField(logfields.Path, d.disk.Path())
	ticker := time.NewTicker(g.every)
	defer ticker.Stop()
	doubtful := false
	for {
		g.listen(d)
		now := replica.LookAtDisk(g.fs, d.disk.Path())
		if lost := judgeDisk(d.held(), now); lost != nil {
			log.WithError(lost).Error("A disk was lost; its replicas stop serving")
			g.lose(d, lost)
			return
		}
		if now.Reason != "" && !doubtful {
			log.WithError(now.Err).Warn("A disk cannot be examined; its replicas continue to serve")
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

// lose ends the service of all replicas on a disk at once. Then it closes them independently of each other: an
// unfinished request on the old disk delays only its own replica.
func (g *diskGuard) lose(d *guardedDisk, lost *replica.DiskLostError) {
	g.mu.Lock()
	g.forgetLocked(d) // no further tenancy joins
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

// listen adds watches for directories of a disk that are not watched yet. It does so before the check, so that no
// removal in between is missed.
func (g *diskGuard) listen(d *guardedDisk) {
	if d.dirs == nil {
		return
	}
	if d.path != "" { // the watch ends with the last disk, or with the directory
		if _, err := d.dirs.add(d.path, d); err != nil {
			g.log.WithError(err).WithField(logfields.Path, d.disk.Path()).Debug("Cannot watch the directory of a disk's replicas")
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
		g.log.WithError(err).WithField(logfields.Replica, t.replica.Name()).Debug("Cannot watch a replica's directory")
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, in := t.disk.tenant[t]; in {
		t.watched = descriptor
		return
	}
	t.disk.dirs.remove(descriptor, t.disk) // it was released in between
}

func (g *diskGuard) tenants(d *guardedDisk) []*tenancy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(d.tenant))
}

// lookAtTenants closes replicas with data that was deleted while they were open. No path leads to their further writes.
func (g *diskGuard) lookAtTenants(d *guardedDisk) {
	for _, t := range g.tenants(d) {
		if t.deleted {
			continue
		}
		t.measure()
		g.tellAllocated(t)
		// An error proves nothing about the replica: it was closed, or cannot be examined.
		if lost, err := d.disk.Check(t.replica); err == nil && lost != nil {
			t.deleted = true
			t.replica.Lose(lost)
			g.watchers.Go(func() { t.evict(t, lost) })
		}
	}
}

// await returns when no disk is checked any longer, or when a check has hung for too long. All replicas must be closed.
func (g *diskGuard) await(limit time.Duration) {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	ended := make(chan struct{})
	go func() { // outlives await only if the kernel does not answer
		defer close(ended)
		g.watchers.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(limit):
		g.log.Warn("A check of a disk hangs")
	}
}
