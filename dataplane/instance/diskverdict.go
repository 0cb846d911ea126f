package instance

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// heldDisk says which disk is held open.
type heldDisk struct {
	path, uuid string
	id         replica.DiskID
}

// judgeDisk compares a disk that is held open with what its path leads to now. nil: it is the disk, or that cannot be told, which is
// no reason to believe that it is not: what is held open is the disk in any case.
//
//	the path leads to                                   verdict
//	nothing                                             DiskUnmounted
//	something that cannot be examined                   kept
//	the held directory, with its UUID and replicas      kept
//	the held directory, its UUID file missing or torn   kept: the data is there, and its device tells; the node says what to mend
//	the held directory, its UUID file of another disk   DiskReplaced
//	the held directory, with something else in the      DiskReplaced
//	  place of the held directory of replicas
//	the held directory, without a directory of replicas DataDeleted
//	another directory, no mount, without a UUID file    DiskUnmounted: it is what was beneath
//	any other directory                                 DiskReplaced
//
// A mount that is another but leads to the same directory of the same device is the disk: a file system that was unmounted and
// mounted again while it was held open, or mounted at the path a second time. A byte-for-byte clone with the same UUID file is on
// another device. Once nothing is held open any more a clone cannot be told from the disk.
func judgeDisk(held heldDisk, now replica.Sighting) *replica.DiskLostError {
	switch {
	case !now.Found && now.Reason == replica.IOError:
		return nil
	case !now.Found:
		return lost(held, replica.DiskUnmounted, "there is nothing at the path")
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
		return lost(held, replica.DiskReplaced, "its UUID file names disk %s now, not %s", now.UUID, held.uuid)
	case now.UUID == "", now.Reason == replica.IOError:
		return nil
	case now.Reason == replica.DiskMissing:
		return lost(held, replica.DataDeleted, "its directory of replicas is gone")
	case now.Reason != "":
		return lost(held, replica.DiskReplaced, "%v", now.Err)
	case now.ID.Replicas != held.id.Replicas:
		return lost(held, replica.DiskReplaced, "its directory of replicas is another now")
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
