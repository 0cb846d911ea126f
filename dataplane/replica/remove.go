package replica

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Remove permanently deletes a replica's directory if its metadata carries the uid. If there is no metadata, the intent
// map must carry the uid. The directory must contain nothing foreign.
//
//  1. remove the leftover of an interrupted Remove or Create of the same uid
//  2. open the directory, take its lock, read its metadata and its names; refuse if they are not this replica's
//  3. rename it to .<name>.deleting-<uid>, check that it is still the directory that was opened, sync the parent: the
//     commit point, before which no file is touched
//  4. unlink layers, data, map and metadata, in this order, then the directory
//  5. sync the parent
//
// A missing directory is a success, because the disk exists, with its UUID. Refusals have the reasons of Open; then the
// directory stays.
func (d *Disk) Remove(dir, uid string) error {
	name, err := d.place(dir)
	if err != nil {
		return err
	}
	return removeIn(d.replicas, dir, name, uid)
}

func removeIn(parent fsys.Dir, dir, name, uid string) error {
	if !uidForm.MatchString(uid) {
		return refuse(dir, InvalidSpec, "UID %q must be 1 to 64 letters, digits and '-'", uid)
	}
	for _, leftover := range []string{deletingName(name, uid), creatingName(name, uid)} {
		if err := clearLeftover(parent, leftover, uid); err != nil {
			return fmt.Errorf("remove the leftovers of an interrupted step: %w", err)
		}
	}
	d, err := openForRemoval(parent, dir, name, uid)
	if ReasonOf(err) == ReplicaMissing {
		if err := parent.Sync(); err != nil { // the unlink may have been done by an interrupted Remove
			return fmt.Errorf("remove replica directory %s: %w", dir, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := rename(parent, d, name, deletingName(name, uid)); err != nil {
		return refuse(dir, IOError, "%w", err)
	}
	if err := removeOpened(parent, d, deletingName(name, uid), uid); err != nil {
		return fmt.Errorf("remove replica directory %s: %w", dir, err)
	}
	return nil
}

// openForRemoval opens and locks the directory and checks that it is this replica's, in whatever state its data is. If
// the metadata is gone, the intent map names the owner.
func openForRemoval(parent fsys.Dir, dir, name, uid string) (fsys.Dir, error) {
	d, err := parent.OpenDir(name)
	if err != nil {
		return nil, refuseFile(dir, err, ReplicaMissing, NotAReplica)
	}
	m, err := readMeta(d)
	switch {
	case errors.Is(err, syscall.ENOENT) && hasMapOf(d, uid):
		err = nil
	case err != nil:
		err = refuseFile(dir, err, NotAReplica, MetadataTorn)
	case m.UID != uid:
		err = refuse(dir, OtherReplica, "the directory contains the replica with UID %s, expected %s", m.UID, uid)
	}
	if err == nil {
		err = lock(d, dir)
	}
	if err == nil {
		err = checkOnlyOurs(d, dir, uid)
	}
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

func lock(d fsys.Dir, dir string) error {
	switch err := d.TryLock(); {
	case errors.Is(err, fsys.ErrLocked):
		return refuse(dir, Locked, "%w", err)
	case err != nil:
		return refuse(dir, IOError, "%w", err)
	}
	return nil
}

func checkOnlyOurs(d fsys.Dir, dir, uid string) error {
	names, err := d.Names()
	if err != nil {
		return refuse(dir, IOError, "%w", err)
	}
	if n := foreignName(d, uid, names); n != "" {
		return refuse(dir, NotAReplica, "%w: the directory also contains %q", ErrForeign, n)
	}
	return nil
}

// foreignName returns the first name in a replica's directory that is not the replica's, or "".
func foreignName(d fsys.Dir, uid string, names []string) string {
	layers := layerNames(d, uid)
	for _, n := range names {
		if !slices.Contains(ownFiles, n) && !layers(n) {
			return n
		}
	}
	return ""
}

// layerNames returns which names in a directory are files of a chain of layers. In format 1 it is only an index that an
// interrupted change of format has left. The metadata says which format it is. If there is no metadata, a list of this
// replica does.
func layerNames(d fsys.Dir, uid string) func(name string) bool {
	owns, listed := chain.Owns(d, uid)
	m, err := readMeta(d)
	if err == nil && m.UID == uid && m.Layers > 0 || errors.Is(err, syscall.ENOENT) && listed {
		return func(name string) bool { return name != dataName && owns(name) }
	}
	return isIndexLeft(d, uid)
}

// rename moves an open directory aside. If another directory has taken its name since it was opened, rename moves that
// one back.
func rename(parent, d fsys.Dir, from, to string) error {
	if err := parent.RenameNew(from, to); err != nil {
		return err
	}
	held, err := d.ID()
	if err != nil {
		return err
	}
	moved, err := parent.Lookup(to)
	if err == nil && moved == held {
		return parent.Sync()
	}
	return errors.Join(fmt.Errorf("%w: another directory has replaced it", ErrForeign), err, parent.RenameNew(to, from))
}

// ownFiles are the names that may be in a replica's directory, in the order in which they are removed. The metadata is
// removed last, because it names the owner of the directory. The files of layers are removed before all of them. A list
// of layers in format 1 is left by a crash before the change to format 2.
var ownFiles = slices.Concat([]string{dataName}, chain.ListNames, []string{intentTempName, changesName, intentName, metaTempName, metaName})

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
	return removeOpened(parent, d, name, uid)
}

// checkLeftover refuses a directory with foreign names or with metadata of another uid. It accepts metadata that is cut
// short, because an interrupted Create leaves such metadata.
func checkLeftover(d fsys.Dir, uid string) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	if n := foreignName(d, uid, names); n != "" {
		return fmt.Errorf("%w: the directory contains %q", ErrForeign, n)
	}
	m, err := readMeta(d)
	if err == nil && m.UID != uid {
		return fmt.Errorf("%w: the directory contains the metadata of the replica with UID %s", ErrForeign, m.UID)
	}
	return nil
}

// removeOpened removes one of our directories, which is open, with all its files.
func removeOpened(parent, d fsys.Dir, name, uid string) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	layers := layerNames(d, uid)
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(ownFiles, n) || !layers(n) })
	for _, n := range slices.Concat(names, ownFiles) {
		if err := d.Unlink(n); err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	if err := parent.Rmdir(name); err != nil {
		return err
	}
	return parent.Sync()
}
