package replica

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Create makes a replica's directory on the disk, and no other. All of it lands in the file system that holds the disk's directory,
// whatever becomes of the path meanwhile.
//
//  1. clear what an interrupted Create of the same uid left
//  2. make .<name>.creating-<uid> with all files in it, and sync each of them and it
//  3. rename it to <name>, unless that exists: the commit point
//  4. sync the parent
//
// It succeeds again for the same Spec while no engine was ever admitted. When <name> is anything else the error is a
// *RefusedError that wraps ErrForeign or ErrExists, and what is there is untouched.
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
		return fmt.Errorf("clear what an interrupted creation left: %w", err)
	}
	if err := fill(parent, temp, spec); err != nil {
		return errors.Join(fmt.Errorf("create replica directory %s: %w", dir, err), clearLeftover(parent, temp, spec.UID))
	}
	err := parent.RenameNew(temp, name)
	if errors.Is(err, syscall.EEXIST) { // another came in between
		if err := clearLeftover(parent, temp, spec.UID); err != nil {
			return err
		}
		if done, err := confirmCreated(parent, dir, name, spec); done || err != nil {
			return err
		}
		return fmt.Errorf("create replica directory %s: another was there and is gone", dir)
	}
	if err == nil {
		err = parent.Sync()
	}
	if err != nil {
		return fmt.Errorf("create replica directory %s: %w", dir, err)
	}
	return nil
}

// confirmCreated tells whether the replica is there as Create made it. Then it makes sure that it stays: the Create that made
// it may have been interrupted before its last step.
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

// fill makes a directory with a new replica's files, all durable but its own name.
func fill(parent fsys.Dir, temp string, spec Spec) error {
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
	// The metadata comes first: from then on the directory says whose it is.
	if err := writeNew(d, metaName, meta); err != nil {
		return err
	}
	if err := writeNew(d, metaTempName, make([]byte, metaBlockBytes)); err != nil {
		return err
	}
	// The map is written whole, not left as a hole, so that a later mark needs no new space.
	image := newIntentImage(spec.UID, m.RegionBytes, regionCount(m.SizeBytes, m.RegionBytes))
	if err := writeNew(d, intentName, image.b); err != nil {
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

// ownFiles are the names that may be in a replica's directory, in the order in which they are removed: the metadata last, for
// it says whose the directory is.
var ownFiles = []string{dataName, besideName, changesName, intentName, metaTempName, metaName}

// clearLeftover removes a directory with the name that an interrupted Create or Remove of a uid leaves, if it is there. It
// refuses with ErrForeign, before it removes anything, when something in it cannot be of that uid.
func clearLeftover(parent fsys.Dir, name, uid string) error {
	d, err := parent.OpenDir(name)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return nil
	case errors.Is(err, fsys.ErrNotRegular):
		return fmt.Errorf("%w: %s: %w", ErrForeign, name, err)
	case err != nil:
		return err
	}
	defer d.Close()
	if err := d.TryLock(); err != nil {
		return err
	}
	if err := checkLeftover(d, uid); err != nil {
		return fmt.Errorf("directory %s: %w", name, err)
	}
	return removeOpened(parent, d, name)
}

// checkLeftover refuses a directory with foreign names or with metadata of another uid. Metadata cut short is let pass: a
// Create that was interrupted leaves it so.
func checkLeftover(d fsys.Dir, uid string) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if !slices.Contains(ownFiles, n) {
			return fmt.Errorf("%w: it holds %q", ErrForeign, n)
		}
	}
	m, err := readMeta(d)
	if err == nil && m.UID != uid {
		return fmt.Errorf("%w: it holds the metadata of uid %s", ErrForeign, m.UID)
	}
	return nil
}

// removeOpened removes an open directory of ours with all its files.
func removeOpened(parent, d fsys.Dir, name string) error {
	for _, n := range ownFiles {
		if err := d.Unlink(n); err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	if err := parent.Rmdir(name); err != nil {
		return err
	}
	return parent.Sync()
}
