package replica

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Reason is one CamelCase word that says why a directory was refused or a replica ended. It is shown to users.
type Reason string

const (
	// DiskMissing: the disk's directory, its UUID file or its directory for replicas does not exist. So the disk is not
	// mounted or not prepared.
	DiskMissing Reason = "DiskMissing"
	// DiskMismatch: the UUID file names another disk or cannot be parsed. Or the disk has something else than a plain
	// directory in the place of its replicas.
	DiskMismatch Reason = "DiskMismatch"
	// DiskUnmounted: the disk's path no longer leads to the disk, while a replica on it is open; nothing else is
	// mounted there.
	DiskUnmounted Reason = "DiskUnmounted"
	// DiskReplaced: the disk's path leads to something else while a replica on it is open.
	DiskReplaced Reason = "DiskReplaced"
	// DataDeleted: files or the directory of an open replica were deleted, moved or replaced.
	DataDeleted Reason = "DataDeleted"
	// ReplicaMissing: no object with the replica's name exists.
	ReplicaMissing Reason = "ReplicaMissing"
	// NotAReplica: a directory exists without our metadata in it, or something else is in the place of a plain file or
	// directory.
	NotAReplica Reason = "NotAReplica"
	// MetadataTorn: the metadata is ours, but it is cut short, or its checksum or content is wrong.
	MetadataTorn Reason = "MetadataTorn"
	// UnknownVersion: a file was written in a format that this program does not know.
	UnknownVersion Reason = "UnknownVersion"
	// OtherReplica: a sound replica, but its uid, volume or name differs.
	OtherReplica Reason = "OtherReplica"
	// ReplicaUsed: it is this replica, but an engine was admitted to it, so it cannot be created again.
	ReplicaUsed Reason = "ReplicaUsed"
	// SizeMismatch: the replica is larger than the volume.
	SizeMismatch Reason = "SizeMismatch"
	// DataMissing: the data file is missing; or the metadata is missing, in a directory with this replica's intent map.
	DataMissing Reason = "DataMissing"
	// DataWrongSize: the length of the data file is not the length in the metadata.
	DataWrongSize Reason = "DataWrongSize"
	// IntentMapMissing: the intent map is missing.
	IntentMapMissing Reason = "IntentMapMissing"
	// IntentMapTorn: the intent map is cut short, damaged, or does not belong to the metadata.
	IntentMapTorn Reason = "IntentMapTorn"
	// LayersTorn: the list of layers, a map or another file of a layer is damaged, or does not belong to the replica.
	LayersTorn Reason = "LayersTorn"
	// Locked: another process, or this one, has the replica open.
	Locked Reason = "Locked"
	// IOError: the file system returned an error that proves nothing about the replica.
	IOError Reason = "IOError"
	// InvalidSpec: the caller's request does not describe a valid replica.
	InvalidSpec Reason = "InvalidSpec"
	// DiskNotResponding: the disk has not answered for so long that the caller stopped waiting.
	DiskNotResponding Reason = "DiskNotResponding"
	// WriteFailed: a write or sync failed on an open replica, which then stopped serving.
	WriteFailed Reason = "WriteFailed"
)

// DiskLostError says why an open replica lost its disk.
type DiskLostError struct {
	// Reason is DiskUnmounted, DiskReplaced or DataDeleted.
	Reason Reason
	// Path is the path of the disk.
	Path string
	// Now says what the path leads to now, or which part of the replica is gone.
	Now string
}

// Error names the path, the reason and the current state.
func (e *DiskLostError) Error() string {
	switch e.Reason {
	case DataDeleted:
		return fmt.Sprintf("its data on disk %s was deleted: %s", e.Path, e.Now)
	case DiskReplaced:
		return fmt.Sprintf("its disk %s was replaced: %s", e.Path, e.Now)
	}
	return fmt.Sprintf("its disk %s was unmounted: %s", e.Path, e.Now)
}

// RefusedError says why a directory was not opened, created or removed. Nothing was written to it.
type RefusedError struct {
	Reason Reason
	Dir    string
	Err    error // the cause; may be nil
	// WritesLost means that the opening learned of lost writes, and the disk may have refused to record this. Later
	// openings must be told (Options.Distrust).
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

// ReasonOf finds the Reason in an error; "" if there is none.
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
	// ErrForeign: something that is not this replica is in its place. It stays unchanged.
	ErrForeign = errors.New("something that is not this replica is in its place")
	// ErrExists: this replica exists and was written to, so it cannot be created again.
	ErrExists = errors.New("the replica exists and has been used")
	// ErrFenced: the gate belongs to another generation or session.
	ErrFenced = errors.New("fenced")
	// ErrBusy: the same session is still connected.
	ErrBusy = errors.New("the session is still connected")
	// ErrInUse: an engine is connected.
	ErrInUse = errors.New("an engine is connected")
	// ErrFailed: an earlier write failed; the replica must be opened again.
	ErrFailed = errors.New("the replica failed")
	// ErrReadOnly: the replica was opened for reading only.
	ErrReadOnly = errors.New("the replica is open only for reading")
	// ErrRebuilding: the data is being replaced from another replica.
	ErrRebuilding = errors.New("the replica is being rebuilt")
	// ErrClosed: the replica or session was closed.
	ErrClosed = errors.New("it was closed")
)

func refuse(dir string, reason Reason, format string, args ...any) error {
	var cause error
	if format != "" {
		cause = fmt.Errorf(format, args...)
	}
	return &RefusedError{Reason: reason, Dir: dir, Err: cause}
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
