package replica

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

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
	if err := writeNew(d, metaName, meta); err != nil {
		return err
	}
	if err := writeNew(d, metaTempName, make([]byte, metaBlockBytes)); err != nil {
		return err
	}
	// The map is written in full, without holes, so that a later mark needs no new space.
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

// ownFiles are the names that may be in a replica's directory, in the order in which they are removed. The metadata is
// removed last, because it names the owner of the directory.
var ownFiles = []string{dataName, intentTempName, changesName, intentName, metaTempName, metaName}

// clearLeftover removes a directory with the name that an interrupted Create or Remove of a uid leaves, if it exists.
// If the directory contains something that cannot belong to that uid, clearLeftover refuses with ErrForeign before it
// removes anything.
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

// checkLeftover refuses a directory with foreign names or with metadata of another uid. It accepts metadata that is cut
// short, because an interrupted Create leaves such metadata.
func checkLeftover(d fsys.Dir, uid string) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if !slices.Contains(ownFiles, n) {
			return fmt.Errorf("%w: the directory contains %q", ErrForeign, n)
		}
	}
	m, err := readMeta(d)
	if err == nil && m.UID != uid {
		return fmt.Errorf("%w: the directory contains the metadata of the replica with UID %s", ErrForeign, m.UID)
	}
	return nil
}

// removeOpened removes one of our directories, which is open, with all its files.
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
