package instance

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

func TestJudgeDisk(t *testing.T) {
	const other = "d15c0000-0000-4000-8000-00000000000f"
	at := func(device, inode, replicas uint64) replica.DiskID {
		return replica.DiskID{Directory: fsys.ID{Device: device, Inode: inode}, Replicas: fsys.ID{Device: device, Inode: replicas}}
	}
	bare := func(device, inode uint64) replica.DiskID {
		return replica.DiskID{Directory: fsys.ID{Device: device, Inode: inode}}
	}
	sda, loop := unix.Mkdev(8, 1), unix.Mkdev(7, 3)
	held := heldDisk{path: "/mnt/d1", uuid: diskUUID, id: at(loop, 2, 12)}
	wrong := errors.New("the UUID file is torn")
	for _, tc := range []struct {
		name       string
		now        replica.Sighting
		wantReason replica.Reason // "" means that it is kept
		want       string
	}{
		{name: "the held directory → kept", now: replica.Sighting{Found: true, MountPoint: true, ID: at(loop, 2, 12), UUID: diskUUID}},
		{name: "the held directory, no mount any more but a bind of it or a parent → kept", now: replica.Sighting{Found: true, ID: at(loop, 2, 12), UUID: diskUUID}},
		{name: "the path cannot be examined → kept", now: replica.Sighting{Reason: replica.IOError, Err: wrong}},
		{name: "the held directory, its UUID file cannot be read → kept", now: replica.Sighting{Found: true, ID: bare(loop, 2), Reason: replica.IOError, Err: wrong}},
		{name: "the held directory, its replicas cannot be examined → kept", now: replica.Sighting{Found: true, ID: bare(loop, 2), UUID: diskUUID, Reason: replica.IOError, Err: wrong}},
		{name: "the held directory, the UUID file is torn → kept", now: replica.Sighting{Found: true, ID: bare(loop, 2), Reason: replica.DiskMismatch, Err: wrong}},
		{name: "the held directory, the UUID file was removed → kept", now: replica.Sighting{Found: true, ID: bare(loop, 2), Reason: replica.DiskMissing, Err: errors.New("no UUID file")}},
		{
			name: "the held directory, its replicas are gone → deleted", now: replica.Sighting{Found: true, ID: bare(loop, 2), UUID: diskUUID, Reason: replica.DiskMissing, Err: wrong},
			wantReason: replica.DataDeleted, want: "its data on disk /mnt/d1 was deleted: its directory of replicas no longer exists",
		},
		{
			name: "nothing → unmounted", now: replica.Sighting{Reason: replica.DiskMissing, Err: wrong},
			wantReason: replica.DiskUnmounted, want: "its disk /mnt/d1 was unmounted: nothing exists at the path",
		},
		{
			name: "what was beneath → unmounted", now: replica.Sighting{Found: true, ID: bare(sda, 77), Reason: replica.DiskMissing, Err: wrong},
			wantReason: replica.DiskUnmounted, want: "its disk /mnt/d1 was unmounted: the path leads to a directory without a UUID file, on device 8:1",
		},
		{
			name: "an empty mount → replaced", now: replica.Sighting{Found: true, MountPoint: true, ID: bare(sda, 2), Reason: replica.DiskMissing, Err: wrong},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: the path leads to a mount without a UUID file, on device 8:1",
		},
		{
			name: "another disk → replaced", now: replica.Sighting{Found: true, MountPoint: true, ID: at(sda, 2, 12), UUID: other},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: the path leads to disk " + other + ", on device 8:1",
		},
		{
			name: "a byte-for-byte clone → replaced, for it is on another device", now: replica.Sighting{Found: true, MountPoint: true, ID: at(sda, 2, 12), UUID: diskUUID},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: the path leads to another directory with the same UUID, which is a copy, on device 8:1",
		},
		{
			name: "a copy in another directory of the file system → replaced", now: replica.Sighting{Found: true, ID: at(loop, 99, 100), UUID: diskUUID},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: the path leads to another directory with the same UUID, which is a copy, on device 7:3",
		},
		{
			name: "another directory whose UUID file cannot be read → replaced", now: replica.Sighting{Found: true, ID: bare(sda, 2), Reason: replica.IOError, Err: wrong},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: the path leads to a directory whose UUID file cannot be read, on device 8:1",
		},
		{
			name: "the held directory, the UUID file names another → replaced", now: replica.Sighting{Found: true, ID: at(loop, 2, 12), UUID: other},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: its UUID file now has the UUID " + other + " instead of " + diskUUID,
		},
		{
			name: "the held directory, its replicas are mounted over → replaced", now: replica.Sighting{Found: true, ID: bare(loop, 2), UUID: diskUUID, Reason: replica.DiskMismatch, Err: errors.New("replicas: another file system")},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: replicas: another file system",
		},
		{
			name: "the held directory, its replicas are another directory → replaced", now: replica.Sighting{Found: true, ID: at(loop, 2, 13), UUID: diskUUID},
			wantReason: replica.DiskReplaced, want: "its disk /mnt/d1 was replaced: its directory of replicas was replaced by another directory",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := judgeDisk(held, tc.now)
			switch {
			case got == nil && tc.wantReason != "":
				t.Errorf("kept, want %s", tc.wantReason)
			case got != nil && (got.Reason != tc.wantReason || got.Error() != tc.want):
				t.Errorf("got %s %q, want %s %q", got.Reason, got, tc.wantReason, tc.want)
			}
		})
	}
}
