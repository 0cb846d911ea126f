package replica

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Create creates a replica's directory on the requested disk only. All its files go to the file system that holds the
// disk's directory, even if the path leads elsewhere later.
//
//  1. remove the leftover of an interrupted Create of the same uid
//  2. create .<name>.creating-<uid> with all its files; sync each file and the directory
//  3. rename it to <name>, unless that name exists: the commit point
//  4. sync the parent
//
// For the same Spec, Create succeeds again as long as no engine was ever admitted. If <name> is anything else, the
// error is a *RefusedError that wraps ErrForeign or ErrExists, and the existing object is unchanged.
func (d *Disk) Create(dir string, spec Spec) error {
	name, err := d.place(dir)
	if err != nil {
		return err
	}
	return createIn(d.replicas, dir, name, spec)
}

func createIn(parent fsys.Dir, dir, name string, spec Spec) error {
	if err := spec.validate(); err != nil {
		return refuse(dir, InvalidSpec, "%w", err)
	}
	if done, err := confirmCreated(parent, dir, name, spec); done || err != nil {
		return err
	}
	temp := creatingName(name, spec.UID)
	if err := clearLeftover(parent, temp, spec.UID); err != nil {
		return fmt.Errorf("remove the leftovers of an interrupted creation: %w", err)
	}
	if err := createFiles(parent, temp, spec); err != nil {
		return errors.Join(fmt.Errorf("create replica directory %s: %w", dir, err), clearLeftover(parent, temp, spec.UID))
	}
	err := parent.RenameNew(temp, name)
	if errors.Is(err, syscall.EEXIST) { // another call created it in between
		if err := clearLeftover(parent, temp, spec.UID); err != nil {
			return err
		}
		if done, err := confirmCreated(parent, dir, name, spec); done || err != nil {
			return err
		}
		return fmt.Errorf("create replica directory %s: another directory was there and has been removed", dir)
	}
	if err == nil {
		err = parent.Sync()
	}
	if err != nil {
		return fmt.Errorf("create replica directory %s: %w", dir, err)
	}
	return nil
}

// confirmCreated reports whether the replica exists as Create creates it. If so, it syncs the parent, because the
// earlier Create may have been interrupted before its last step.
func confirmCreated(parent fsys.Dir, dir, name string, spec Spec) (bool, error) {
	if _, err := parent.Lookup(name); errors.Is(err, syscall.ENOENT) {
		return false, nil
	}
	d, m, err := identify(parent, dir, name, spec)
	if err != nil {
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Reason != IOError {
			refused.Err = errors.Join(ErrForeign, refused.Err)
		}
		return false, err
	}
	defer d.Close()
	if m.Generation > 0 {
		return false, refuse(dir, ReplicaUsed, "%w: an engine of generation %d was admitted", ErrExists, m.Generation)
	}
	if err := parent.Sync(); err != nil {
		return false, fmt.Errorf("create replica directory %s: %w", dir, err)
	}
	return true, nil
}

// createFiles creates a directory with a new replica's files. All of it is durable except the directory's own name.
func createFiles(parent fsys.Dir, temp string, spec Spec) error {
	if err := parent.Mkdir(temp); err != nil {
		return err
	}
	d, err := parent.OpenDir(temp)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.TryLock(); err != nil {
		return err
	}
	m := Meta{
		UID: spec.UID, Volume: spec.Volume, Name: spec.Name,
		SizeBytes: spec.SizeBytes, RegionBytes: RegionBytes(spec.SizeBytes), Clean: true,
	}
	meta, err := m.encode()
	if err != nil {
		return err
	}
	// The metadata is written first: from then on the directory names its owner.
	if err := fsys.WriteNew(d, metaName, meta); err != nil {
		return err
	}
	if err := fsys.WriteNew(d, metaTempName, make([]byte, metaBlockBytes)); err != nil {
		return err
	}
	// The map is written in full, without holes, so that a later mark needs no new space.
	image := newIntentImage(spec.UID, m.RegionBytes, regionCount(m.SizeBytes, m.RegionBytes))
	if err := fsys.WriteNew(d, intentName, image.b); err != nil {
		return err
	}
	data, err := d.OpenFile(dataName, fsys.CreateNew)
	if err != nil {
		return err
	}
	err = data.Truncate(spec.SizeBytes)
	if err == nil {
		err = data.Sync()
	}
	if err := errors.Join(err, data.Close()); err != nil {
		return err
	}
	return d.Sync()
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
		admission: make(chan struct{}, 1), metas: replacesMeta(d), lane: newLane(1, opts.Clock), views: map[*View]struct{}{},
		layout: newPassage(), writing: newPassage(), syncing: make(chan struct{}, 1),
	}
	if !opts.ReadOnly && m.GrowsTo > want.SizeBytes {
		return nil, errors.Join(refuse(dir, SizeMismatch, "the replica grows to %d bytes, but the requested size is %d bytes", m.GrowsTo, want.SizeBytes), d.Close())
	}
	r.size.Store(m.SizeBytes)
	r.syncs.run = r.syncData
	r.merger = newMerger(r)
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
	r.merger.end()
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
		steps = append(steps, r.intents.rewrite)
	}
	switch {
	case r.meta.Layers > 0:
		steps = append(steps, r.openLayers)
	case !r.meta.Clean:
		steps = append(steps, r.dropCache)
	}
	for _, step := range steps {
		err := step()
		if err != nil && ReasonOf(err) == "" {
			err = refuse(r.dirPath, IOError, "%w", err)
		}
		if err != nil {
			return err
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
	if r.meta.Layers > 0 {
		return r.inspectLayers()
	}
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
	other, err := r.dir.OpenFile(dataName, fsys.ReadOnly)
	if err != nil {
		return refuseFile(r.dirPath, err, DataMissing, NotAReplica)
	}
	r.errors = other
	r.out = newWriteback(file, r.opts.Pace, r.opts.Clock, r.checkWrittenOut, r.failWriteBack)
	r.data = flat{r.out}
	r.show()
	return nil
}

// closeFiles closes the open files, the lock last.
func (r *Replica) closeFiles() {
	if r.data != nil {
		_ = r.data.Close() // the important data was synced, with a check for errors
	}
	if r.errors != nil {
		_ = r.errors.Close()
	}
	if r.imap != nil {
		_ = r.imap.Close()
	}
	if r.since != nil {
		r.since.close()
	}
	_ = r.dir.Close()
}
