package instance

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// heldDisk identifies the disk that is held open.
type heldDisk struct {
	path, uuid string
	id         replica.DiskID
}

// judgeDisk compares a disk that is held open with what its path leads to now. nil means that it is the disk, or that
// this is unknown. In the second case there is no reason to doubt it, because the held directories belong to the disk
// in any case.
//
//	the path leads to                                   verdict
//	nothing                                             DiskUnmounted
//	something that cannot be examined                   kept
//	the held directory, with its UUID and replicas      kept
//	the held directory, its UUID file missing or torn   kept: the data exists, and its device identifies the disk; the
//	                                                    node's condition says what to repair
//	the held directory, its UUID file of another disk   DiskReplaced
//	the held directory, with something else in the      DiskReplaced
//	  place of the held directory of replicas
//	the held directory, without a directory of replicas DataDeleted
//	another directory, no mount, without a UUID file    DiskUnmounted: it is the directory below the mount point
//	any other directory                                 DiskReplaced
//
// Another mount that leads to the same directory of the same device is the disk. Either the file system was unmounted
// and mounted again while it was held open, or it was mounted at the path a second time. A byte-for-byte clone with the
// same UUID file is on another device. When nothing is held open, a clone cannot be distinguished from the disk.
func judgeDisk(held heldDisk, now replica.Sighting) *replica.DiskLostError {
	switch {
	case !now.Found && now.Reason == replica.IOError:
		return nil
	case !now.Found:
		return lost(held, replica.DiskUnmounted, "nothing exists at the path")
	case now.ID.Directory == held.id.Directory:
		return judgeContent(held, now)
	case now.Reason == replica.DiskMissing && now.UUID == "" && !now.MountPoint:
		return lost(held, replica.DiskUnmounted, "the path leads to a directory without a UUID file%s", onDevice(now))
	}
	return lost(held, replica.DiskReplaced, "the path leads to %s%s", kind(held, now), onDevice(now))
}

// judgeContent judges the held directory itself.
func judgeContent(held heldDisk, now replica.Sighting) *replica.DiskLostError {
	switch {
	case now.UUID != "" && now.UUID != held.uuid:
		return lost(held, replica.DiskReplaced, "its UUID file now has the UUID %s instead of %s", now.UUID, held.uuid)
	case now.UUID == "", now.Reason == replica.IOError:
		return nil
	case now.Reason == replica.DiskMissing:
		return lost(held, replica.DataDeleted, "its directory of replicas no longer exists")
	case now.Reason != "":
		return lost(held, replica.DiskReplaced, "%v", now.Err)
	case now.ID.Replicas != held.id.Replicas:
		return lost(held, replica.DiskReplaced, "its directory of replicas was replaced by another directory")
	}
	return nil
}

// kind describes a directory that is not the held one.
func kind(held heldDisk, now replica.Sighting) string {
	switch {
	case now.UUID == held.uuid:
		return "another directory with the same UUID, which is a copy"
	case now.UUID != "":
		return "disk " + now.UUID
	case now.Reason == replica.DiskMissing:
		return "a mount without a UUID file"
	}
	return "a directory whose UUID file cannot be read"
}

func onDevice(now replica.Sighting) string {
	device := now.ID.Directory.Device
	return fmt.Sprintf(", on device %d:%d", unix.Major(device), unix.Minor(device))
}

func lost(held heldDisk, reason replica.Reason, format string, args ...any) *replica.DiskLostError {
	return &replica.DiskLostError{Reason: reason, Path: held.path, Now: fmt.Sprintf(format, args...)}
}
