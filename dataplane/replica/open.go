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

// Options tune an open replica.
type Options struct {
	// BootID of this machine's boot, from the kernel. Empty means unknown: then no unclean replica is trusted to have kept
	// what was not synced.
	BootID string
	// Distrust says that writes of this boot may have been lost as well: the caller saw an error of the disk, or its loss, in an
	// earlier opening. Then no unclean replica with marks is trusted, until its marks are cleared or it is rebuilt.
	Distrust bool
	// ReadOnly opens for reading alone: nothing is ever written, no engine is admitted, and Views are all there is. The intent map
	// is not needed.
	ReadOnly bool
	// OnChange, if set, is called after State changed, with no lock held. It must not block.
	OnChange func()
	// OnProgress, if set, is called during a long opening, each time the disk has done a part of it. It must not block.
	OnProgress func()
	// Log receives what a person should know; nil discards it.
	Log *logrus.Entry
	// Pace is that of the disk, which its replicas share; nil: the replica has one of its own.
	Pace *Pace
	// Asked remembers over several openings when engines asked; nil: the replica remembers it for this opening.
	Asked *Asked
	// Clock tells since when the disk has not answered; nil is the real one.
	Clock clock.Clock
}

// Replica is an open, locked replica directory. The caller that opens one must Close it.
type Replica struct {
	dirPath     string
	name        string // of the Replica object
	size        atomic.Int64
	regionBytes int64
	opts        Options

	dir  fsys.Dir // held for its lock and for replacing the metadata
	data blocks
	out  *writeback // what changes of the data go through; nil when opened for reading alone
	// errors is another opening of the data, which nothing is written through: it reports what could not be written out.
	errors   fsys.File
	checking sync.Mutex // held while errors is asked, until the replica has failed if there is one
	imap     fsys.File

	files sync.Mutex // held while held is compared with what the names lead to, and while the intent map is replaced
	held  heldFiles  // guarded by files

	intents *intents
	syncs   group // of data
	// writing is held for reading from the moment a write relies on a mark until its data is in the file, and for writing
	// while marks are cleared.
	writing sync.RWMutex

	// turn has an entry while an admission, a fence or a Close is under way. It passes from their callers to the lane.
	turn chan struct{}
	// lane has one place: all that replaces metadata or clears marks is done there, one after another.
	lane     *lane
	metas    metaStore // used in the lane
	since    *since    // used in the lane, but for base
	released bool      // the files are closed; only the lane's calls look at it

	mu        sync.Mutex
	meta      Meta // guarded by mu; changed under updating too
	cacheKept bool // guarded by mu; see State
	// heardOfLoss says that the opening heard of writes of before that are lost. Guarded by mu.
	heardOfLoss bool
	renewing    bool // guarded by mu; a rebuild was begun in this opening, so when it ends all of the data is of this boot
	// unreadable says that something could neither be read nor be marked. Guarded by mu.
	unreadable bool
	current    *Session           // guarded by mu; the one admitted, until it is closed
	views      map[*View]struct{} // guarded by mu
	hasFailed  atomic.Bool        // failure is about to be set, or is
	failure    error              // guarded by mu; the first write or sync that failed, or how the disk was lost
	// growFailure is why the last attempt to grow did not work; nil after one that did. Guarded by mu.
	growFailure error
	lost        bool // guarded by mu; the disk is gone: nothing is written any more, the metadata included
	closed      bool // guarded by mu
}

// Open opens a replica that Create made, and takes its lock. It changes nothing, but makes durable what it has read, drops from the
// kernel's cache what the disk may not have, and records it when it hears that writes are lost. One that is smaller
// than want is grown then; where there is no space for that it is opened all the same, and State tells. The replica does
// not need the Disk any more, but does not watch it either: a caller that learns that the disk is gone must call Lose. An error is a
// *RefusedError.
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
	if opts.Asked == nil {
		opts.Asked = NewAsked()
	}
	d, m, err := identify(parent, dir, name, want)
	if err != nil {
		return nil, err
	}
	if err := lock(d, dir); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	// Read again under the lock: its last holder may just have replaced it.
	if m, err = readMeta(d); err != nil {
		return nil, errors.Join(refuseFile(dir, err, NotAReplica, MetadataTorn), d.Close())
	}
	r := &Replica{
		dirPath: dir, name: m.Name, regionBytes: m.RegionBytes, opts: opts, dir: d, meta: m,
		turn: make(chan struct{}, 1), metas: metaStore{dir: d}, lane: newLane(1, opts.Clock), views: map[*View]struct{}{},
	}
	if !opts.ReadOnly && m.GrowsTo > want.SizeBytes {
		return nil, errors.Join(refuse(dir, SizeMismatch, "it grows to %d bytes, more than %d", m.GrowsTo, want.SizeBytes), d.Close())
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
			refused.WritesLost = r.heardOfLoss
		}
		return nil, err
	}
	return r, nil
}

// abandon ends an opening that did not succeed. The caller is in the lane, where a failure of the opening may still be recorded.
func (r *Replica) abandon() error {
	r.released = true
	r.closeFiles()
	return nil
}

// confirm makes durable what was read, before anything relies on it. The process that had the replica before may have been killed
// between a step and its sync: then the kernel shows what a loss of power takes back. Or one of its syncs failed: then the kernel shows
// what the disk does not have, and no further sync changes that. So unless the replica was closed in order, the intent map is written
// again as it was read, and the data is dropped from the cache (dropcache.go).
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

// growAtOpening makes a replica as large as it is asked for. Nothing else uses it yet. It stays as it is where there is no space, and where
// it cannot grow: the engine is offered what it has.
func (r *Replica) growAtOpening(sizeBytes int64) error {
	err := r.grow(sizeBytes)
	if err != nil && r.unusable() != nil {
		return refuse(r.dirPath, IOError, "grow to %d bytes: %w", sizeBytes, err)
	}
	if err != nil && r.opts.Log != nil {
		r.opts.Log.WithError(err).Warn("Replica not grown")
	}
	return nil
}

// identify opens a directory and makes sure that it is the wanted replica.
func identify(parent fsys.Dir, dir, name string, want Spec) (fsys.Dir, Meta, error) {
	d, m, err := openIdentified(parent, dir, name, want.UID)
	if err != nil {
		return nil, Meta{}, err
	}
	got := m.spec()
	switch {
	case got.UID != want.UID:
		err = refuse(dir, OtherReplica, "it holds uid %s, not %s", got.UID, want.UID)
	case got.Volume != want.Volume || got.Name != want.Name:
		err = refuse(dir, OtherReplica, "it holds %s of volume %s, not %s of %s", got.Name, got.Volume, want.Name, want.Volume)
	case got.SizeBytes > want.SizeBytes:
		err = refuse(dir, SizeMismatch, "it has %d bytes, more than %d", got.SizeBytes, want.SizeBytes)
	}
	if err != nil {
		_ = d.Close()
		return nil, Meta{}, err
	}
	return d, m, nil
}

// openIdentified opens a directory that has sound metadata. One without any is told from what was never a replica of uid, for such a copy
// can be replaced.
func openIdentified(parent fsys.Dir, dir, name, uid string) (fsys.Dir, Meta, error) {
	d, err := parent.OpenDir(name)
	if err != nil {
		return nil, Meta{}, refuseFile(dir, err, ReplicaMissing, NotAReplica)
	}
	m, err := readMeta(d)
	if err != nil {
		err = refuseFile(dir, err, NotAReplica, MetadataTorn)
		if errors.Is(err, syscall.ENOENT) && hasMapOf(d, uid) {
			err = refuse(dir, DataMissing, "only its metadata is gone: %s", metaName)
		}
		_ = d.Close()
		return nil, Meta{}, err
	}
	return d, m, nil
}

// hasMapOf tells whether the intent map in a directory says that the directory is that of a uid.
func hasMapOf(d fsys.Dir, uid string) bool {
	b, err := readFile(d, intentName, intentSectorBytes)
	return err == nil && uid != "" && intentOwner(b) == uid
}

// refuseFile gives the refusal for an error in opening, reading or decoding something.
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

// readIntents reads the map as the file has it. That of a replica which grows may be longer than its size asks for.
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
		return intentImage{}, refuseFile(r.dirPath, err, IntentMapMissing, IntentMapTorn)
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
		return refuse(r.dirPath, DataWrongSize, "%s has %d bytes, the metadata says %d", dataName, size, r.Size())
	case r.opts.ReadOnly:
		return nil
	}
	if r.errors, err = r.dir.OpenFile(dataName, fsys.ReadOnly); err != nil {
		return refuseFile(r.dirPath, err, DataMissing, NotAReplica)
	}
	r.out = newWriteback(file, r.opts.Pace, r.opts.Clock, r.checkWrittenOut, func(err error) {
		r.fail(fmt.Errorf("write out replica %s: %w", r.name, err))
	})
	r.data = flat{r.out}
	return nil
}

// closeFiles closes what is open, the lock last.
func (r *Replica) closeFiles() {
	if r.data != nil {
		_ = r.data.Close() // what matters was synced, and its error looked at
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
