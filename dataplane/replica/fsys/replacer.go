package fsys

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrUncertain is wrapped if it is unknown which of two versions of a file the disk holds.
var ErrUncertain = errors.New("it is unknown which version of the file the disk has")

// Replacer replaces the whole content of a file. With a spare, this succeeds even when the disk is full: the spare
// reserves room for the next content.
//
//	Name   the content in force
//	Temp   the spare; the next content is written into its blocks. At first it has zeroes, later the previous content.
//	       It is never read
//
// A Replacer is not safe for concurrent use.
type Replacer struct {
	Dir        Dir
	Name, Temp string
	// SpareBytes is the size of the spare, and of each content. Without a spare it is 0.
	SpareBytes int64
	// Exists means that Name exists before the first replacement. If it was deleted, nothing is known about the
	// directory, so a replacement ends with ErrUncertain. Otherwise the first replacement creates it.
	Exists bool

	// uncertain: the names were exchanged, and it is unknown which of the two files a loss of power leaves as Name. Then
	// neither file may be written to.
	uncertain bool
}

// IsUncertain reports whether a replacement has ended with ErrUncertain. A later replacement writes to a new file, and
// cannot change that.
func (r *Replacer) IsUncertain() bool { return r.uncertain }

// Replace replaces the content, all or nothing:
//
//  1. write and sync Temp: in place if it is a sound spare, otherwise as a new file
//  2. exchange its name with Name. Rename it if names cannot be exchanged, if Name does not exist yet, or if there is
//     no spare. This is the commit point
//  3. sync the directory
//  4. create the spare if it is missing
//
// After an error before the commit point, the old content is in force. An error after it wraps ErrUncertain. Without a
// sync of the directory, a loss of power could undo the exchange and restore the spare as the content. So step 1 is
// safe only after the previous step 3. The caller must sync the directory first if an earlier process may have done the
// previous replacement.
func (r *Replacer) Replace(b []byte) error {
	if err := r.stage(b); err != nil {
		return fmt.Errorf("write %s: %w", r.Temp, err)
	}
	was := r.uncertain
	r.uncertain = true
	err := error(syscall.EOPNOTSUPP)
	if r.SpareBytes > 0 {
		err = r.Dir.Exchange(r.Temp, r.Name)
	}
	if errors.Is(err, syscall.EOPNOTSUPP) || r.mayCreate(err) {
		err = r.Dir.Rename(r.Temp, r.Name)
	}
	if err == nil {
		err = r.Dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("%w: replace %s: %w", ErrUncertain, r.Name, err)
	}
	r.uncertain = was // after a failed sync no later sync is believed
	r.KeepSpare()
	return nil
}

// mayCreate reports whether err says that Name does not exist, and it may be created.
func (r *Replacer) mayCreate(err error) bool { return !r.Exists && errors.Is(err, syscall.ENOENT) }

// stage durably writes b to Temp.
func (r *Replacer) stage(b []byte) error {
	if f := r.openSpare(int64(len(b))); f != nil {
		err := f.WriteAt(b, 0)
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	return r.makeTemp(b)
}

// makeTemp creates a new Temp, which needs space.
func (r *Replacer) makeTemp(b []byte) error {
	if err := r.Dir.Unlink(r.Temp); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	err := WriteNew(r.Dir, r.Temp, b)
	if err != nil {
		_ = r.Dir.Unlink(r.Temp) // best effort: frees blocks of a full disk; the next replacement repeats it
	}
	return err
}

// openSpare opens the spare if size bytes can be written over it. For this, the spare must have that size and all its
// blocks. It must not be the content in force, under another name or after a loss of power.
func (r *Replacer) openSpare(size int64) File {
	if r.uncertain || r.SpareBytes == 0 {
		return nil
	}
	f, err := r.Dir.OpenFile(r.Temp, ReadWrite)
	if err != nil {
		return nil
	}
	have, errSize := f.Size()
	allocated, errAllocated := f.AllocatedBytes()
	spare, errSpare := f.ID()
	inForce, errInForce := r.Dir.Lookup(r.Name)
	if r.mayCreate(errInForce) {
		errInForce = nil
	}
	if errors.Join(errSize, errAllocated, errSpare, errInForce) != nil || have != size || allocated < size || spare == inForce {
		_ = f.Close() // nothing was written
		return nil
	}
	return f
}

// KeepSpare creates the spare if it is missing. If the disk lacks the space, the next replacement tries again.
func (r *Replacer) KeepSpare() {
	if r.SpareBytes == 0 {
		return
	}
	if f := r.openSpare(r.SpareBytes); f != nil {
		_ = f.Close() // nothing was written
		return
	}
	if !r.uncertain {
		_ = r.makeTemp(make([]byte, r.SpareBytes))
	}
}

// WriteNew creates a file with the given content and syncs it.
func WriteNew(dir Dir, name string, content []byte) error {
	f, err := dir.OpenFile(name, CreateNew)
	if err != nil {
		return err
	}
	err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
