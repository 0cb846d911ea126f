package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

const (
	diskA = "d15c0000-0000-4000-8000-00000000000a"
	diskB = "d15c0000-0000-4000-8000-00000000000b"
)

// makeDisk turns a directory into a disk.
func makeDisk(t testing.TB, dir, uuid string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "replicas"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, disk.ConfigFileName), []byte(`{"diskUUID":"`+uuid+`"}`), 0o600))
}

func openDisk(t testing.TB, f fsys.FS, dir, uuid string) *Disk {
	t.Helper()
	d, err := OpenDisk(f, dir, uuid)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestOnlyTheDiskThatIsAskedForIsOpened(t *testing.T) {
	config := func(text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, disk.ConfigFileName), []byte(text), 0o600))
		}
	}
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, dir string)
		uuid   string
		want   Reason // "" means that it opens
	}{
		{name: "its UUID → opened", uuid: diskA},
		{name: "its UUID in upper case → opened", uuid: strings.ToUpper(diskA)},
		{name: "an old UUID file with nothing else in it, in upper case → opened", uuid: diskA, change: config(`{"diskUUID":"` + strings.ToUpper(diskA) + `"}`)},
		{name: "no UUID asked for → invalid", uuid: "", want: InvalidSpec},
		{name: "another UUID → refused", uuid: diskB, want: DiskMismatch},
		{name: "no directory → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
		}},
		{name: "a file in its place → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
		}},
		{name: "a directory without a UUID file, as beneath a mount → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, disk.ConfigFileName)))
		}},
		{name: "no directory for replicas → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "replicas")))
		}},
		{name: "an empty UUID file → refused", uuid: diskA, want: DiskMismatch, change: config("")},
		{name: "a torn UUID file → refused", uuid: diskA, want: DiskMismatch, change: config(`{"diskUUID":"` + diskA)},
		{name: "a UUID file without a UUID → refused", uuid: diskA, want: DiskMismatch, change: config("{}")},
		{name: "a UUID file that is too long → refused", uuid: diskA, want: DiskMismatch, change: config(`{"diskUUID":"` + diskA + `"}` + strings.Repeat(" ", disk.MaxConfigBytes))},
		{name: "a link in the place of the UUID file → refused", uuid: diskA, want: DiskMismatch, change: func(t *testing.T, dir string) {
			name := filepath.Join(dir, disk.ConfigFileName)
			require.NoError(t, os.Rename(name, name+".real"))
			require.NoError(t, os.Symlink(name+".real", name))
		}},
		{name: "a pipe in the place of the UUID file → refused, without waiting", uuid: diskA, want: DiskMismatch, change: func(t *testing.T, dir string) {
			name := filepath.Join(dir, disk.ConfigFileName)
			require.NoError(t, os.Remove(name))
			require.NoError(t, syscall.Mkfifo(name, 0o600))
		}},
		{name: "a link in the place of the directory for replicas → refused", uuid: diskA, want: DiskMismatch, change: func(t *testing.T, dir string) {
			name := filepath.Join(dir, "replicas")
			require.NoError(t, os.Rename(name, name+".real"))
			require.NoError(t, os.Symlink(name+".real", name))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "disk")
			makeDisk(t, dir, diskA)
			if tc.change != nil {
				tc.change(t, dir)
			}
			before := treeHash(t, top)
			d, err := OpenDisk(fsys.Host{}, dir, tc.uuid)
			require.Equal(t, tc.want, ReasonOf(err), err)
			require.Equal(t, err == nil, tc.want == "")
			if err == nil {
				require.NoError(t, d.Close())
			}
			assert.Equal(t, before, treeHash(t, top), "opening changed something")
		})
	}
}

func TestAReplicaMustLieOnTheDiskThatIsNamed(t *testing.T) {
	top := t.TempDir()
	makeDisk(t, filepath.Join(top, "a"), diskA)
	makeDisk(t, filepath.Join(top, "b"), diskB)
	d := openDisk(t, fsys.Host{}, filepath.Join(top, "a"), diskA)
	before := treeHash(t, top)
	for _, dir := range []string{
		filepath.Join(top, "b/replicas/r"), filepath.Join(top, "a/r"), filepath.Join(top, "a/replicas"), filepath.Join(top, "a/replicas/x/r"),
		top + "/a/replicas/../../b/replicas/r", "replicas/r", "",
	} {
		_, err := d.Open(dir, testSpec("u", mib), Options{})
		for what, err := range map[string]error{
			"create": d.Create(dir, testSpec("u", mib)), "open": err, "remove": d.Remove(dir, "u"),
		} {
			assert.Equal(t, InvalidSpec, ReasonOf(err), "%s %q: %v", what, dir, err)
		}
	}
	assert.Equal(t, before, treeHash(t, top), "something was touched")
}

// lost is the report that a guard would give.
var lost = &DiskLostError{Reason: DiskUnmounted, Path: "/mnt/d1", Now: "nothing exists at the path"}

func TestAReplicaThatLostItsDiskWritesNothingMore(t *testing.T) {
	ctx := context.Background()
	top := t.TempDir()
	makeDisk(t, top, diskA)
	d := openDisk(t, fsys.Host{}, top, diskA)
	dir, spec := filepath.Join(top, "replicas/r"), testSpec("uid-1", 64*mib)
	require.NoError(t, d.Create(dir, spec))
	told := 0
	r, err := d.Open(dir, spec, Options{BootID: testBoot, OnChange: func() { told++ }})
	require.NoError(t, err)
	s := admit(t, r, 1, "one")
	require.NoError(t, s.WriteAt(ctx, stampBlock(1), 0, true))
	before, toldBefore := treeHash(t, top), told

	r.Lose(lost)
	assert.Equal(t, toldBefore+1, told, "told of %d changes", told-toldBefore)
	<-s.Done()
	_, controlErr := s.Control(ctx, membership.OpBeginRebuild, nil)
	_, admitErr := r.Admit(ctx, 2, "two")
	_, viewErr := r.View()
	for what, err := range map[string]error{
		"session": s.Err(), "write": s.WriteAt(ctx, stampBlock(2), 0, false), "flush": s.Flush(ctx), "trim": s.Trim(ctx, 0, 512, false),
		"zero": s.Zero(ctx, 0, 512, 0), "control": controlErr, "admission": admitErr, "view": viewErr, "fence": r.Fence(ctx, 9),
	} {
		assert.ErrorIs(t, err, ErrFailed, what)
	}
	got := r.State().Failure
	assert.ErrorIs(t, got, error(lost))
	assert.Equal(t, DiskUnmounted, ReasonOf(got))
	assert.Equal(t, "not current: its disk was lost while it was open", r.Warning())
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(ctx))
	assert.Equal(t, before, treeHash(t, top), "something was written after the disk was lost")

	again, err := d.Open(dir, spec, Options{BootID: testBoot})
	require.NoError(t, err)
	assert.False(t, again.meta.Clean)
	assert.Equal(t, int64(1), again.State().Generation, "opened again with clean")
	require.NoError(t, again.Close(ctx))
}

func TestTheLossOfTheDiskCountsMoreThanAnEarlierFailure(t *testing.T) {
	r := newHostReplica(t, mib)
	r.fail(errors.New("a write failed"))
	r.Lose(lost)
	r.Lose(&DiskLostError{Reason: DiskReplaced})
	assert.Equal(t, DiskUnmounted, ReasonOf(r.State().Failure))
	before := treeHash(t, filepath.Dir(r.dirPath))
	require.NoError(t, r.Close(context.Background()))
	assert.Equal(t, before, treeHash(t, filepath.Dir(r.dirPath)), "closing wrote that writes were lost, to a disk that is gone")
}

// before calls a function once, before one step of a replica's creation or removal.
type before struct {
	fsys.FS
	step string
	do   *func()
}

type beforeDir struct {
	fsys.Dir
	before
}

func (b before) at(step string) {
	if step == b.step && *b.do != nil {
		do := *b.do
		*b.do = nil
		do()
	}
}

func (b before) wrap(d fsys.Dir, err error) (fsys.Dir, error) {
	if err != nil {
		return nil, err
	}
	return beforeDir{d, b}, nil
}

func (b before) OpenDir(path string) (fsys.Dir, error) { return b.wrap(b.FS.OpenDir(path)) }

func (d beforeDir) OpenDir(name string) (fsys.Dir, error) {
	d.at("opendir " + name)
	return d.wrap(d.Dir.OpenDir(name))
}

func (d beforeDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	d.at("openfile " + name)
	return d.Dir.OpenFile(name, mode)
}

func (d beforeDir) Mkdir(name string) error {
	d.at("mkdir")
	return d.Dir.Mkdir(name)
}

func (d beforeDir) RenameNew(from, to string) error {
	d.at("rename")
	return d.Dir.RenameNew(from, to)
}

// The disk goes away between two steps of a replica's creation. The remaining steps change the disk, and nothing below
// it.
func TestADiskThatGoesAwayBetweenTwoStepsIsWrittenToAndNotWhatIsBeneath(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	for _, step := range []string{"opendir replicas", "mkdir", "openfile " + metaName, "openfile " + dataName, "rename"} {
		for _, cover := range []bool{false, true} {
			top := t.TempDir()
			point, aside := filepath.Join(top, "disk"), filepath.Join(top, "aside")
			// The worst case: the directory below the mount looks right, too.
			require.NoError(t, os.MkdirAll(filepath.Join(point, "replicas"), 0o700))
			require.NoError(t, os.Mkdir(aside, 0o700))
			beneath := treeHash(t, point)
			require.NoError(t, unix.Mount("none", point, "tmpfs", 0, ""))
			require.NoError(t, unix.Mount(point, aside, "", unix.MS_BIND, "")) // gives access to the disk afterwards
			makeDisk(t, point, diskA)
			vanish := func() {
				if cover {
					require.NoError(t, unix.Mount("none", point, "tmpfs", 0, ""))
					require.NoError(t, os.Mkdir(filepath.Join(point, "replicas"), 0o700))
					return
				}
				require.NoError(t, unix.Unmount(point, unix.MNT_DETACH))
			}
			d, err := OpenDisk(before{fsys.Host{}, step, &vanish}, point, diskA)
			require.NoError(t, err)
			require.NoError(t, d.Create(filepath.Join(point, "replicas/r"), testSpec("u", mib)))
			require.Nil(t, vanish, "step %q did not come", step)
			if cover {
				left, err := os.ReadDir(filepath.Join(point, "replicas"))
				require.NoError(t, err)
				assert.Empty(t, left, "before %s", step)
				require.NoError(t, unix.Unmount(point, unix.MNT_DETACH))
				require.NoError(t, unix.Unmount(point, unix.MNT_DETACH))
			}
			assert.Equal(t, beneath, treeHash(t, point), "before %s: something was made beneath the mount point", step)
			_, err = os.Stat(filepath.Join(aside, "replicas/r", metaName))
			assert.NoError(t, err, "before %s: the replica is not on the disk", step)
			assert.NoError(t, d.Remove(filepath.Join(point, "replicas/r"), "u"), "before %s", step)
			require.NoError(t, d.Close())
			require.NoError(t, unix.Unmount(aside, unix.MNT_DETACH))
		}
	}
}

func TestASightingIdentifiesTheDirectory(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "disk")
	s := LookAtDisk(fsys.Host{}, dir)
	assert.False(t, s.Found)
	assert.Equal(t, DiskMissing, s.Reason)
	makeDisk(t, dir, diskA)
	plain := LookAtDisk(fsys.Host{}, dir)
	assert.True(t, plain.Found)
	assert.False(t, plain.MountPoint)
	assert.Equal(t, diskA, plain.UUID)
	assert.Empty(t, plain.Reason)
	assert.NotEqual(t, fsys.ID{}, plain.ID.Replicas, "a disk")
	require.NoError(t, unix.Mount("none", filepath.Join(dir, "replicas"), "tmpfs", 0, ""))
	s = LookAtDisk(fsys.Host{}, dir)
	assert.Equal(t, plain.ID.Directory, s.ID.Directory)
	assert.Equal(t, diskA, s.UUID)
	assert.Equal(t, DiskMismatch, s.Reason, "a mount over its replicas")
	require.NoError(t, unix.Unmount(filepath.Join(dir, "replicas"), 0))
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	s = LookAtDisk(fsys.Host{}, dir)
	assert.True(t, s.Found)
	assert.True(t, s.MountPoint)
	assert.Empty(t, s.UUID)
	assert.Equal(t, DiskMissing, s.Reason)
	assert.NotEqual(t, plain.ID.Directory, s.ID.Directory, "a mount over it")
	require.NoError(t, unix.Unmount(dir, 0))
	require.NoError(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	s = LookAtDisk(fsys.Host{}, dir)
	assert.Equal(t, plain.ID, s.ID)
	assert.Empty(t, s.Reason, "the same directory mounted once more")
	require.NoError(t, unix.Unmount(dir, 0))
}
