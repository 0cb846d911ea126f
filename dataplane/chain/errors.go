package chain

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Errors of an opening. Each is wrapped with the name of the file and the rule that it breaks.
var (
	// ErrNotOurs says that a file has another content than its name says.
	ErrNotOurs = errors.New("the file is of another kind")
	// ErrNewVersion says that a later release wrote the file.
	ErrNewVersion = errors.New("the format version is unknown")
	// ErrTorn says that a file is damaged, or does not belong to this replica.
	ErrTorn = errors.New("the file is damaged")
	// ErrMissing says that the list names a file that does not exist.
	ErrMissing = errors.New("a file of the list does not exist")
	// ErrForeign says that the directory has a layer file with a number that was never given out. The opening has changed
	// nothing.
	ErrForeign = errors.New("the directory has a layer file that this replica did not create")
)

var (
	// ErrUncertain says that it is unknown which of two lists the disk has. The chain has failed.
	ErrUncertain = errors.New("it is unknown whether the list of layers was replaced")
	// ErrClosed says that the chain, or the view, was closed.
	ErrClosed = errors.New("the layers are closed")
	// ErrNotSwitched says that changes still go to the file below the border.
	ErrNotSwitched = errors.New("the replica has not switched to the next head")
	// ErrRange says that a request reaches past the end of the volume.
	ErrRange = fmt.Errorf("the range is outside of the volume: %w", syscall.EINVAL)
	// ErrReadOnly says that the chain was opened for reading only.
	ErrReadOnly = errors.New("the layers are open for reading only")
)

// Cause is why a chain has failed.
type Cause int

const (
	// NotFailed: the chain serves.
	NotFailed Cause = iota
	// FailedSync: data or bits may be lost, although a write was answered.
	FailedSync
	// UncertainReplacement: it is unknown which list, or which kept map, the disk has.
	UncertainReplacement
	// DiskError is any other error of a call that changes a file. Such a call may report data that is lost.
	DiskError
	// Closed: the caller has closed the chain.
	Closed
)

func causeOf(err error) Cause {
	switch {
	case err == nil:
		return NotFailed
	case errors.Is(err, ErrClosed):
		return Closed
	case errors.Is(err, errSync):
		return FailedSync
	case errors.Is(err, ErrUncertain), errors.Is(err, fsys.ErrUncertain):
		return UncertainReplacement
	}
	return DiskError
}

// losesData reports whether acknowledged data may be lost. Then the next opening of this boot must know it.
func (c Cause) losesData() bool { return c == FailedSync || c == DiskError }

// errSync says that a sync of data or of a map has failed. It is never harmless, whatever the cause: a file system may
// report ENOSPC for data that it could not write out, and this data is lost.
var errSync = errors.New("a sync has failed")

// errShort says that a recent file ends before its entries. It wraps ErrTorn.
var errShort = fmt.Errorf("%w: it is too short", ErrTorn)

// errUnread says that a merge could not open or read a file. This step of the merge has changed nothing.
var errUnread = errors.New("the merge cannot read")

// isNoSpace reports whether a change failed only because the disk is full, or because the file system allows no larger
// file. Such a failure loses nothing.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

func isMissing(err error) bool { return errors.Is(err, syscall.ENOENT) }
