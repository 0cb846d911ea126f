package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

const (
	diskA = "d15c0000-0000-4000-8000-00000000000a"
	diskB = "d15c0000-0000-4000-8000-00000000000b"
)

// makeDisk makes a directory a disk.
func makeDisk(t testing.TB, dir, uuid string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "replicas"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, disk.ConfigFileName), []byte(`{"diskUUID":"`+uuid+`"}`), 0o600))
}

func openDisk(t testing.TB, f fsys.FS, dir, uuid string) *Disk {
	t.Helper()
	d, err := OpenDisk(f, dir, uuid)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func TestOnlyTheDiskThatIsAskedForIsOpened(t *testing.T) {
	config := func(text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, disk.ConfigFileName), []byte(text), 0o600))
		}
	}
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, dir string)
		uuid   string
		want   Reason // "": opened
	}{
		{name: "its UUID → opened", uuid: diskA},
		{name: "its UUID in upper case → opened", uuid: strings.ToUpper(diskA)},
		{name: "an old UUID file with nothing else in it, in upper case → opened", uuid: diskA, change: config(`{"diskUUID":"` + strings.ToUpper(diskA) + `"}`)},
		{name: "no UUID asked for → invalid", uuid: "", want: InvalidSpec},
		{name: "another UUID → refused", uuid: diskB, want: DiskMismatch},
		{name: "no directory → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
		}},
		{name: "a file in its place → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.WriteFile(dir, nil, 0o600))
		}},
		{name: "a directory without a UUID file, as beneath a mount → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, disk.ConfigFileName)))
		}},
		{name: "no directory for replicas → missing", uuid: diskA, want: DiskMissing, change: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "replicas")))
		}},
		{name: "an empty UUID file → refused", uuid: diskA, want: DiskMismatch, change: config("")},
		{name: "a torn UUID file → refused", uuid: diskA, want: DiskMismatch, change: config(`{"diskUUID":"` + diskA)},
		{name: "a UUID file without a UUID → refused", uuid: diskA, want: DiskMismatch, change: config("{}")},
		{name: "a UUID file that is too long → refused", uuid: diskA, want: DiskMismatch, change: config(`{"diskUUID":"` + diskA + `"}` + strings.Repeat(" ", disk.MaxConfigBytes))},
		{name: "a link in the place of the UUID file → refused", uuid: diskA, want: DiskMismatch, change: func(t *testing.T, dir string) {
			name := filepath.Join(dir, disk.ConfigFileName)
			must(t, os.Rename(name, name+".real"))
			must(t, os.Symlink(name+".real", name))
		}},
		{name: "a pipe in the place of the UUID file → refused, without waiting", uuid: diskA, want: DiskMismatch, change: func(t *testing.T, dir string) {
			name := filepath.Join(dir, disk.ConfigFileName)
			must(t, os.Remove(name))
			must(t, syscall.Mkfifo(name, 0o600))
		}},
		{name: "a link in the place of the directory for replicas → refused", uuid: diskA, want: DiskMismatch, change: func(t *testing.T, dir string) {
			name := filepath.Join(dir, "replicas")
			must(t, os.Rename(name, name+".real"))
			must(t, os.Symlink(name+".real", name))
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
			if ReasonOf(err) != tc.want || (tc.want == "") != (err == nil) {
				t.Fatalf("error %v, want reason %q", err, tc.want)
			}
			if err == nil {
				must(t, d.Close())
			}
			if treeHash(t, top) != before {
				t.Error("opening changed something")
			}
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
			if ReasonOf(err) != InvalidSpec {
				t.Errorf("%s %q: %v", what, dir, err)
			}
		}
	}
	if treeHash(t, top) != before {
		t.Error("something was touched")
	}
}

// lost is what a guard would say.
var lost = &DiskLostError{Reason: DiskUnmounted, Path: "/mnt/d1", Now: "there is nothing at the path"}

func TestAReplicaThatLostItsDiskWritesNothingMore(t *testing.T) {
	ctx := context.Background()
	top := t.TempDir()
	makeDisk(t, top, diskA)
	d := openDisk(t, fsys.Host{}, top, diskA)
	dir, spec := filepath.Join(top, "replicas/r"), testSpec("uid-1", 64*mib)
	must(t, d.Create(dir, spec))
	told := 0
	r, err := d.Open(dir, spec, Options{BootID: testBoot, OnChange: func() { told++ }})
	must(t, err)
	s := admit(t, r, 1, "one")
	must(t, s.WriteAt(ctx, stampBlock(1), 0, true))
	before, toldBefore := treeHash(t, top), told

	r.Lose(lost)
	if told != toldBefore+1 {
		t.Errorf("told of %d changes, want 1", told-toldBefore)
	}
	<-s.Done()
	_, controlErr := s.Control(ctx, membership.OpBeginRebuild, nil)
	_, admitErr := r.Admit(ctx, 2, "two")
	_, viewErr := r.View()
	for what, err := range map[string]error{
		"session": s.Err(), "write": s.WriteAt(ctx, stampBlock(2), 0, false), "flush": s.Flush(ctx), "trim": s.Trim(ctx, 0, 512, false),
		"zero": s.Zero(ctx, 0, 512, 0), "control": controlErr, "admission": admitErr, "view": viewErr, "fence": r.Fence(ctx, 9),
	} {
		if !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v, want an error that the replica failed", what, err)
		}
	}
	if got := r.State().Failure; !errors.Is(got, error(lost)) || ReasonOf(got) != DiskUnmounted {
		t.Errorf("failure %v", got)
	}
	if got := r.Caution(); got != "not current, for its disk went away while it was open" {
		t.Errorf("caution %q", got)
	}
	must(t, s.Close())
	must(t, r.Close(ctx))
	if treeHash(t, top) != before {
		t.Error("something was written after the disk was lost")
	}

	again, err := d.Open(dir, spec, Options{BootID: testBoot})
	must(t, err)
	if again.meta.Clean || again.State().Generation != 1 {
		t.Errorf("opened again with clean %t, generation %d", again.meta.Clean, again.State().Generation)
	}
	must(t, again.Close(ctx))
}

func TestTheLossOfTheDiskCountsMoreThanAnEarlierFailure(t *testing.T) {
	r := newHostReplica(t, mib)
	r.fail(errors.New("a write failed"))
	r.Lose(lost)
	r.Lose(&DiskLostError{Reason: DiskReplaced})
	if got := ReasonOf(r.State().Failure); got != DiskUnmounted {
		t.Errorf("reason %q, want the first loss", got)
	}
	before := treeHash(t, filepath.Dir(r.dirPath))
	must(t, r.Close(context.Background()))
	if treeHash(t, filepath.Dir(r.dirPath)) != before {
		t.Error("closing wrote that writes were lost, to a disk that is gone")
	}
}

// before calls a function once, before a step of a replica's creation or removal.
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

// The disk goes away between two steps of making a replica: all that is still made is made on the disk, beneath is nothing.
func TestADiskThatGoesAwayBetweenTwoStepsIsWrittenToAndNotWhatIsBeneath(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	for _, step := range []string{"opendir replicas", "mkdir", "openfile " + metaName, "openfile " + dataName, "rename"} {
		for _, cover := range []bool{false, true} {
			top := t.TempDir()
			point, aside := filepath.Join(top, "disk"), filepath.Join(top, "aside")
			must(t, os.MkdirAll(filepath.Join(point, "replicas"), 0o700)) // the worst case: it looks right beneath, too
			must(t, os.Mkdir(aside, 0o700))
			beneath := treeHash(t, point)
			must(t, unix.Mount("none", point, "tmpfs", 0, ""))
			must(t, unix.Mount(point, aside, "", unix.MS_BIND, "")) // to see the disk afterwards
			makeDisk(t, point, diskA)
			vanish := func() {
				if cover {
					must(t, unix.Mount("none", point, "tmpfs", 0, ""))
					must(t, os.Mkdir(filepath.Join(point, "replicas"), 0o700))
					return
				}
				must(t, unix.Unmount(point, unix.MNT_DETACH))
			}
			d, err := OpenDisk(before{fsys.Host{}, step, &vanish}, point, diskA)
			must(t, err)
			must(t, d.Create(filepath.Join(point, "replicas/r"), testSpec("u", mib)))
			if vanish != nil {
				t.Fatalf("step %q did not come", step)
			}
			if cover {
				left, err := os.ReadDir(filepath.Join(point, "replicas"))
				must(t, err)
				if len(left) > 0 {
					t.Errorf("before %s: %v was made in what was mounted over the disk", step, left)
				}
				must(t, unix.Unmount(point, unix.MNT_DETACH))
				must(t, unix.Unmount(point, unix.MNT_DETACH))
			}
			if treeHash(t, point) != beneath {
				t.Errorf("before %s: something was made beneath the mount point", step)
			}
			if _, err := os.Stat(filepath.Join(aside, "replicas/r", metaName)); err != nil {
				t.Errorf("before %s: the replica is not on the disk: %v", step, err)
			}
			if err := d.Remove(filepath.Join(point, "replicas/r"), "u"); err != nil {
				t.Errorf("before %s: remove: %v", step, err)
			}
			must(t, d.Close())
			must(t, unix.Unmount(aside, unix.MNT_DETACH))
		}
	}
}

func TestASightingTellsWhatAPathLeadsTo(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "disk")
	if s := LookAtDisk(fsys.Host{}, dir); s.Found || s.Reason != DiskMissing {
		t.Errorf("nothing: %+v", s)
	}
	makeDisk(t, dir, diskA)
	plain := LookAtDisk(fsys.Host{}, dir)
	if !plain.Found || plain.MountPoint || plain.UUID != diskA || plain.Reason != "" || plain.ID.Replicas == (fsys.ID{}) {
		t.Errorf("a disk: %+v", plain)
	}
	must(t, unix.Mount("none", filepath.Join(dir, "replicas"), "tmpfs", 0, ""))
	if s := LookAtDisk(fsys.Host{}, dir); s.ID.Directory != plain.ID.Directory || s.UUID != diskA || s.Reason != DiskMismatch {
		t.Errorf("a mount over its replicas: %+v", s)
	}
	must(t, unix.Unmount(filepath.Join(dir, "replicas"), 0))
	must(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	if s := LookAtDisk(fsys.Host{}, dir); !s.Found || !s.MountPoint || s.UUID != "" || s.Reason != DiskMissing || s.ID.Directory == plain.ID.Directory {
		t.Errorf("a mount over it: %+v", s)
	}
	must(t, unix.Unmount(dir, 0))
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	if s := LookAtDisk(fsys.Host{}, dir); s.ID != plain.ID || s.Reason != "" {
		t.Errorf("the same directory mounted once more: %+v, want %+v", s, plain)
	}
	must(t, unix.Unmount(dir, 0))
}
