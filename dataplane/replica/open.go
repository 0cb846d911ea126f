package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sirupsen/logrus"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Options configure an open replica.
type Options struct {
	// BootID is the id of this machine's boot, from the kernel. Empty means unknown: then no unclean replica is trusted
	// to have kept data that was not synced.
	BootID string
	// Distrust means that writes of this boot may have been lost as well: in an earlier opening, the caller saw an
	// error of the disk or its loss. Then no unclean replica with marks is trusted, until its marks are cleared or it
	// is rebuilt.
	Distrust bool
	// ReadOnly opens for reading only: nothing is ever written, no engine is admitted, and only Views are possible. The
	// intent map is not needed.
	ReadOnly bool
	// OnChange, if set, is called after State changed, with no lock held. It must not block.
	OnChange func()
	// OnProgress, if set, is called during a long opening, each time when the disk has completed a part. It must not
	// block.
	OnProgress func()
	// Log receives messages for administrators; nil discards them.
	Log *logrus.Entry
	// Pace is the pace of the disk, which its replicas share; nil: the replica has its own.
	Pace *Pace
	// Questions remembers over several openings when engines asked. If it is nil, the replica remembers this for
	// this opening only.
	Questions *QuestionTimes
	// Clock measures how long the disk has not answered; nil is the real clock.
	Clock clock.Clock
}

// Replica is an open, locked replica directory. The caller that opens one must Close it.
type Replica struct {
	dirPath     string
	name        string // of the Replica object
	size        atomic.Int64
	regionBytes int64
	opts        Options

	dir  fsys.Dir // held for its lock and to replace the metadata
	data blocks
	out  *writeback // changes of the data pass through it; nil in an opening for reading only
	// errors is another opening of the data, and nothing is written through it. It reports data that could not be
	// written out.
	errors   fsys.File
	checking sync.Mutex // held during the question to errors, until the replica has failed if there is an error
	imap     fsys.File

	files sync.Mutex // held while held is compared with the files of these names, and while the intent map is replaced
	held  heldFiles  // guarded by files

	intents *intents
	syncs   group // of data
	// writing is held for reading from the time when a write relies on a mark until its data is in the file. It is held
	// for writing while marks are cleared.
	writing sync.RWMutex

	// admission has an entry while an admission, a fence or a Close is under way. Their callers pass it on to the
	// lane.
	admission chan struct{}
	// lane has one place: it runs all calls that replace metadata or clear marks, one after another.
	lane     *lane
	metas    metaStore // used in the lane
	since    *since    // used in the lane, except base
	released bool      // the files are closed; only the lane's calls look at it

	mu        sync.Mutex
	meta      Meta // guarded by mu; replaced only in the lane
	cacheKept bool // guarded by mu; see State
	// isLossReported means that the opening learned of lost writes from before the opening. Guarded by mu.
	isLossReported bool
	// renewing means that a rebuild was started in this opening. So when it ends, all of the data is of this boot.
	// Guarded by mu.
	renewing bool
	// unreadable means that some data could neither be read nor be marked. Guarded by mu.
	unreadable bool
	current    *Session           // guarded by mu; the admitted session, until it is closed
	views      map[*View]struct{} // guarded by mu
	hasFailed  atomic.Bool        // failure is about to be set, or is
	failure    error              // guarded by mu; the first write or sync that failed, or how the disk was lost
	// growFailure is the error of the last attempt to grow; nil after a successful attempt. Guarded by mu.
	growFailure error
	lost        bool // guarded by mu; the disk is gone: nothing is written from now on, not even metadata
	closed      bool // guarded by mu
}

// Open opens a replica that Create created, and takes its lock. It makes the content that it has read durable, and
// drops from the kernel's cache the data that the disk may not have. If it learns that writes are lost, it records
// this. It changes nothing else. A replica that is smaller than want is then grown. If the space for that is lacking,
// the replica is opened all the same, and State reports it. The replica does not need the Disk later, but does not
// watch it either: a caller that learns that the disk is gone must call Lose. An error is a *RefusedError.
func (d *Disk) Open(dir string, want Spec, opts Options) (*Replica, error) {
	name, err := d.place(dir)
	if err != nil {
		return nil, err
	}
	return openIn(d.replicas, dir, name, want, opts)
}

func openIn(parent fsys.Dir, dir, name string, want Spec, opts Options) (*Replica, error) {
	if err := want.validate(); err != nil {
		return nil, refuse(dir, InvalidSpec, "%w", err)
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Pace == nil {
		opts.Pace = NewPace()
	}
	if opts.Questions == nil {
		opts.Questions = NewQuestionTimes()
	}
	d, m, err := identify(parent, dir, name, want)
	if err != nil {
		return nil, err
	}
	if err := lock(d, dir); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	// Read it again under the lock, because the previous holder of the lock may have replaced it.
	if m, err = readMeta(d); err != nil {
		return nil, errors.Join(refuseFile(dir, err, NotAReplica, MetadataTorn), d.Close())
	}
	r := &Replica{
		dirPath: dir, name: m.Name, regionBytes: m.RegionBytes, opts: opts, dir: d, meta: m,
		admission: make(chan struct{}, 1), metas: metaStore{dir: d}, lane: newLane(1, opts.Clock), views: map[*View]struct{}{},
	}
	if !opts.ReadOnly && m.GrowsTo > want.SizeBytes {
		return nil, errors.Join(refuse(dir, SizeMismatch, "the replica grows to %d bytes, but the requested size is %d bytes", m.GrowsTo, want.SizeBytes), d.Close())
	}
	r.size.Store(m.SizeBytes)
	r.syncs.run = r.syncData
	err = r.openFiles()
	if err == nil {
		err = r.identifyHeld()
	}
	if err == nil && !opts.ReadOnly {
		err = r.confirm(parent)
	}
	if err == nil && !opts.ReadOnly {
		if r.since, err = openSince(d, m); err != nil {
			err = refuse(dir, IOError, "%w", err)
		}
	}
	if err == nil && !opts.ReadOnly {
		err = r.growAtOpening(want.SizeBytes)
	}
	if err != nil {
		_ = r.lane.run(context.Background(), call{what: "close", work: r.abandon})
		var refused *RefusedError
		if errors.As(err, &refused) {
			refused.WritesLost = r.isLossReported
		}
		return nil, err
	}
	return r, nil
}

// abandon ends an opening that did not succeed. The caller is in the lane, where a failure of the opening may still be
// recorded.
func (r *Replica) abandon() error {
	r.released = true
	r.closeFiles()
	return nil
}

// confirm makes the content durable that was read, before any other step relies on it. The process that had the replica
// before may have been killed between a step and its sync. Then the kernel shows changes that a loss of power would
// undo. Or one of its syncs may have failed. Then the kernel shows content that the disk does not have, and no further
// sync changes that. So unless the replica was closed in order, confirm writes the intent map again as it was read, and
// drops the data from the cache (dropcache.go).
func (r *Replica) confirm(parent fsys.Dir) error {
	steps := []func() error{parent.Sync, r.dir.Sync}
	if r.meta.Clean {
		steps = append(steps, r.imap.Datasync)
	} else {
		steps = append(steps, r.intents.rewrite, r.dropCache)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return refuse(r.dirPath, IOError, "%w", err)
		}
	}
	return nil
}

// growAtOpening grows a replica to the requested size. Nothing else uses the replica yet. The replica keeps its size if
// the space is lacking or it cannot grow: the engine is offered the current size.
func (r *Replica) growAtOpening(sizeBytes int64) error {
	err := r.grow(sizeBytes)
	if err != nil && r.unusable() != nil {
		return refuse(r.dirPath, IOError, "grow to %d bytes: %w", sizeBytes, err)
	}
	if err != nil && r.opts.Log != nil {
		r.opts.Log.WithError(err).Warn("Cannot grow the replica")
	}
	return nil
}

// identify opens a directory and checks that it is the wanted replica.
func identify(parent fsys.Dir, dir, name string, want Spec) (fsys.Dir, Meta, error) {
	d, m, err := openIdentified(parent, dir, name, want.UID)
	if err != nil {
		return nil, Meta{}, err
	}
	got := m.spec()
	switch {
	case got.UID != want.UID:
		err = refuse(dir, OtherReplica, "the directory contains the replica with UID %s, expected %s", got.UID, want.UID)
	case got.Volume != want.Volume || got.Name != want.Name:
		err = refuse(dir, OtherReplica, "the directory contains replica %s of volume %s, expected replica %s of volume %s", got.Name, got.Volume, want.Name, want.Volume)
	case got.SizeBytes > want.SizeBytes:
		err = refuse(dir, SizeMismatch, "the replica has %d bytes, but the requested size is %d bytes", got.SizeBytes, want.SizeBytes)
	}
	if err != nil {
		_ = d.Close()
		return nil, Meta{}, err
	}
	return d, m, nil
}

// openIdentified opens a directory that has sound metadata. For a directory without metadata, it distinguishes a copy
// of uid from a directory that was never one, because such a copy can be replaced.
func openIdentified(parent fsys.Dir, dir, name, uid string) (fsys.Dir, Meta, error) {
	d, err := parent.OpenDir(name)
	if err != nil {
		return nil, Meta{}, refuseFile(dir, err, ReplicaMissing, NotAReplica)
	}
	m, err := readMeta(d)
	if err != nil {
		err = refuseFile(dir, err, NotAReplica, MetadataTorn)
		if errors.Is(err, syscall.ENOENT) && hasMapOf(d, uid) {
			err = refuse(dir, DataMissing, "only its metadata file %s does not exist", metaName)
		}
		_ = d.Close()
		return nil, Meta{}, err
	}
	return d, m, nil
}

// hasMapOf reports whether the intent map in a directory names uid as the owner of the directory.
func hasMapOf(d fsys.Dir, uid string) bool {
	b, err := readFile(d, intentName, intentSectorBytes)
	return err == nil && uid != "" && intentOwner(b) == uid
}

// refuseFile returns the refusal for an error in opening, reading or decoding a file.
func refuseFile(dir string, err error, missing, torn Reason) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return refuse(dir, missing, "%w", err)
	case errors.Is(err, fsys.ErrNotRegular):
		return refuse(dir, NotAReplica, "%w", err)
	case errors.Is(err, errNewVersion):
		return refuse(dir, UnknownVersion, "%w", err)
	case errors.Is(err, errNotOurs) && torn == MetadataTorn:
		return refuse(dir, NotAReplica, "%w", err)
	case errors.Is(err, errNotOurs), errors.Is(err, errTorn):
		return refuse(dir, torn, "%w", err)
	}
	return refuse(dir, IOError, "%w", err)
}

func (r *Replica) openFiles() error {
	if r.opts.ReadOnly {
		return r.openData()
	}
	image, err := r.readIntents()
	if err != nil {
		return err
	}
	if err := r.openData(); err != nil {
		return err
	}
	if r.imap, err = r.dir.OpenFile(intentName, fsys.ReadWrite); err != nil {
		return refuseFile(r.dirPath, err, IntentMapMissing, IntentMapTorn)
	}
	r.intents = newIntents(r.imap, image, r.regionBytes)
	r.cacheKept = hasKept(r.meta, len(image.marked()) > 0, r.opts)
	return nil
}

// readIntents reads the map from the file. In a replica that grows, the map may be longer than the size requires.
func (r *Replica) readIntents() (intentImage, error) {
	regions := regionCount(r.Size(), r.regionBytes)
	most := regionCount(max(r.Size(), r.meta.GrowsTo), r.regionBytes)
	b, err := readFile(r.dir, intentName, intentFileBytes(most))
	if err != nil {
		return intentImage{}, refuseFile(r.dirPath, err, IntentMapMissing, IntentMapTorn)
	}
	if n := intentRegions(b); n > regions && n <= most {
		regions = n
	}
	image, err := decodeIntentImage(b, r.meta.UID, r.regionBytes, regions)
	if err != nil {
		return intentImage{}, refuseFile(r.dirPath, fmt.Errorf("%s: %w", intentName, err), IntentMapMissing, IntentMapTorn)
	}
	return image, nil
}

func (r *Replica) openData() (err error) {
	mode := fsys.ReadWrite
	if r.opts.ReadOnly {
		mode = fsys.ReadOnly
	}
	file, err := r.dir.OpenFile(dataName, mode)
	if err != nil {
		return refuseFile(r.dirPath, err, DataMissing, NotAReplica)
	}
	r.data = flat{file}
	size, err := file.Size()
	switch {
	case err != nil:
		return refuse(r.dirPath, IOError, "%w", err)
	case size < r.Size() || size > max(r.Size(), r.meta.GrowsTo):
		return refuse(r.dirPath, DataWrongSize, "%s has %d bytes, but the metadata says %d bytes", dataName, size, r.Size())
	case r.opts.ReadOnly:
		return nil
	}
	if r.errors, err = r.dir.OpenFile(dataName, fsys.ReadOnly); err != nil {
		return refuseFile(r.dirPath, err, DataMissing, NotAReplica)
	}
	r.out = newWriteback(file, r.opts.Pace, r.opts.Clock, r.checkWrittenOut, func(err error) {
		r.fail(fmt.Errorf("write back the data of replica %s: %w", r.name, err))
	})
	r.data = flat{r.out}
	return nil
}

// closeFiles closes the open files, the lock last.
func (r *Replica) closeFiles() {
	if r.data != nil {
		_ = r.data.Close() // the important data was synced, with a check for errors
	}
	for _, f := range []fsys.File{r.errors, r.imap} {
		if f != nil {
			_ = f.Close()
		}
	}
	if r.since != nil {
		r.since.close()
	}
	_ = r.dir.Close()
}
