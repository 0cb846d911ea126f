package replica

import (
	"errors"
	"fmt"
)

// Reason says in one CamelCase word why a directory was refused or a replica ended. It is shown to users.
type Reason string

const (
	// DiskMissing: the disk's directory, its UUID file or its directory for replicas is not there, so the disk is not mounted or
	// not prepared.
	DiskMissing Reason = "DiskMissing"
	// DiskMismatch: the UUID file names another disk or cannot be understood, or something else than a plain directory of the disk
	// is in the place of its replicas.
	DiskMismatch Reason = "DiskMismatch"
	// DiskUnmounted: the disk's path does not lead to it any more, while a replica on it is open; nothing else is mounted there.
	DiskUnmounted Reason = "DiskUnmounted"
	// DiskReplaced: the disk's path leads to something else, while a replica on it is open.
	DiskReplaced Reason = "DiskReplaced"
	// DataDeleted: files or the directory of an open replica were deleted, moved or replaced under it.
	DataDeleted Reason = "DataDeleted"
	// ReplicaMissing: there is nothing by the replica's name.
	ReplicaMissing Reason = "ReplicaMissing"
	// NotAReplica: something is there without our metadata in it, or what should be a plain file or directory is not.
	NotAReplica Reason = "NotAReplica"
	// MetadataTorn: the metadata is ours but cut short, or its checksum or content is wrong.
	MetadataTorn Reason = "MetadataTorn"
	// UnknownVersion: a file was written in a format that this program does not know.
	UnknownVersion Reason = "UnknownVersion"
	// OtherReplica: a sound replica, but of another uid, volume or name.
	OtherReplica Reason = "OtherReplica"
	// ReplicaUsed: it is this replica, but an engine was admitted to it, so it cannot be made anew.
	ReplicaUsed Reason = "ReplicaUsed"
	// SizeMismatch: the replica is larger than the volume.
	SizeMismatch Reason = "SizeMismatch"
	// DataMissing: there is no data file; or no metadata, in a directory whose intent map is this replica's.
	DataMissing Reason = "DataMissing"
	// DataWrongSize: the data file is not as long as the metadata says.
	DataWrongSize Reason = "DataWrongSize"
	// IntentMapMissing: there is no intent map.
	IntentMapMissing Reason = "IntentMapMissing"
	// IntentMapTorn: the intent map is cut short, damaged, or of other metadata.
	IntentMapTorn Reason = "IntentMapTorn"
	// Locked: another process, or this one, has the replica open.
	Locked Reason = "Locked"
	// IOError: the file system returned an error that says nothing of the replica.
	IOError Reason = "IOError"
	// InvalidSpec: what the caller asked for cannot be a replica.
	InvalidSpec Reason = "InvalidSpec"
	// DiskNotResponding: the disk has not answered for so long that the caller gave up.
	DiskNotResponding Reason = "DiskNotResponding"
	// WriteFailed: a write or sync failed on an open replica, which serves nothing from then on.
	WriteFailed Reason = "WriteFailed"
)

// DiskLostError is why an open replica was taken from its disk.
type DiskLostError struct {
	// Reason is DiskUnmounted, DiskReplaced or DataDeleted.
	Reason Reason
	// Path is the disk's.
	Path string
	// Now tells what the path leads to now, or what of the replica is gone.
	Now string
}

// Error names the path, the reason and what is there now.
func (e *DiskLostError) Error() string {
	switch e.Reason {
	case DataDeleted:
		return fmt.Sprintf("its data on disk %s was deleted: %s", e.Path, e.Now)
	case DiskReplaced:
		return fmt.Sprintf("its disk %s was replaced: %s", e.Path, e.Now)
	}
	return fmt.Sprintf("its disk %s was unmounted: %s", e.Path, e.Now)
}

// RefusedError is why a directory was not opened, made or removed. Nothing was written to it.
type RefusedError struct {
	Reason Reason
	Dir    string
	Err    error // the cause; may be nil
	// WritesLost says that the opening heard of lost writes, which the disk may have refused to record: later openings
	// must be told (Options.Distrust).
	WritesLost bool
}

// Error names the directory, the reason and the cause.
func (e *RefusedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("replica directory %s: %s", e.Dir, e.Reason)
	}
	return fmt.Sprintf("replica directory %s: %s: %v", e.Dir, e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// ReasonOf finds the Reason in an error; "" when there is none.
func ReasonOf(err error) Reason {
	var refused *RefusedError
	var lost *DiskLostError
	var hang *HangError
	switch {
	case errors.As(err, &refused):
		return refused.Reason
	case errors.As(err, &lost):
		return lost.Reason
	case errors.As(err, &hang) && !hang.Since.IsZero():
		return DiskNotResponding
	}
	return ""
}

var (
	// ErrForeign: something that is not this replica is in its place. It is left alone.
	ErrForeign = errors.New("something else is in the replica's place")
	// ErrExists: this replica exists and was written to, so it cannot be made anew.
	ErrExists = errors.New("the replica exists and has been used")
	// ErrFenced: the gate belongs to another generation or session.
	ErrFenced = errors.New("fenced")
	// ErrBusy: the same session is still connected.
	ErrBusy = errors.New("the session is still connected")
	// ErrInUse: an engine is connected.
	ErrInUse = errors.New("an engine is connected")
	// ErrFailed: a write failed earlier; the replica must be opened anew.
	ErrFailed = errors.New("the replica failed")
	// ErrReadOnly: the replica was opened for reading alone.
	ErrReadOnly = errors.New("opened for reading alone")
	// ErrClosed: the replica or session was closed.
	ErrClosed = errors.New("closed")
)

func refuse(dir string, reason Reason, format string, args ...any) error {
	var cause error
	if format != "" {
		cause = fmt.Errorf(format, args...)
	}
	return &RefusedError{Reason: reason, Dir: dir, Err: cause}
}
