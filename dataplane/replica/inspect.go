package replica

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Inspect returns the identity of the replica in a directory, from its metadata. It writes nothing and takes no lock.
// An error is a *RefusedError.
func Inspect(fs fsys.FS, dir string) (Spec, error) {
	parent, name, err := openParent(fs, dir)
	if err != nil {
		return Spec{}, err
	}
	defer parent.Close()
	d, m, err := openIdentified(parent, dir, name, "")
	if err != nil {
		return Spec{}, err
	}
	defer d.Close()
	return m.spec(), nil
}

// OpenCopy opens a replica's directory for reading only. The directory may lie anywhere, because a copy need not be on
// a disk. OpenCopy writes nothing to it. An error is a *RefusedError.
func OpenCopy(fs fsys.FS, dir string, want Spec, opts Options) (*Replica, error) {
	parent, name, err := openParent(fs, dir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	opts.ReadOnly = true
	return openIn(parent, dir, name, want, opts)
}

// openParent opens the directory that holds replicas, of any disk, and returns the name in it.
func openParent(fs fsys.FS, dir string) (fsys.Dir, string, error) {
	path, name, err := place(dir)
	if err != nil {
		return nil, "", err
	}
	parent, err := fs.OpenDir(path)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return nil, "", refuse(dir, DiskMissing, "%w", err)
	case err != nil:
		return nil, "", refuse(dir, IOError, "%w", err)
	}
	return parent, name, nil
}

// Warning says in a few words why a person who reads this replica should not use it as the volume's data. It is "" if
// the replica knows no reason. Only the volume's record shows whether the replica is still a member.
func (r *Replica) Warning() string {
	r.mu.Lock()
	m, failure, closed := r.meta, r.failure, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return ""
	case m.Rebuilding:
		return "incomplete: its rebuild did not finish"
	case ReasonOf(failure) == DataDeleted:
		return "about to be lost: its files were deleted while it was open"
	case errors.As(failure, new(*DiskLostError)):
		return "not current: its disk was lost while it was open"
	case failure != nil:
		return "incomplete: a write to its disk failed"
	case m.Clean:
		return ""
	}
	marked, err := r.markedRegions()
	switch {
	case err != nil:
		return "not closed cleanly, and its intent map cannot be read"
	case marked > 0:
		return fmt.Sprintf("not closed cleanly; %d regions of %d bytes may differ from other replicas", marked, r.regionBytes)
	}
	return "not closed cleanly"
}

func (r *Replica) markedRegions() (int, error) {
	if r.intents != nil {
		return len(r.intents.marked()), nil
	}
	image, err := r.readIntents()
	if err != nil {
		return 0, err
	}
	return len(image.marked()), nil
}

// Volume is the name of the replica's volume.
func (r *Replica) Volume() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meta.Volume
}
