package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// action is one way to take a disk away.
type action struct {
	name string
	take func(s *scene, l *live)
	// undo ends the effects that restoring the mount does not end; nil: none.
	undo func(s *scene, l *live)
	// mayBeRefused says that the kernel may refuse because the disk is in use.
	mayBeRefused bool
	// both says that both disks disappear.
	both bool
	// isDisk says that a new opener cannot distinguish the replacement from the disk.
	isDisk bool
	// kills says that the action also kills the process, so no process is left to notice it.
	kills bool
}

const (
	elsewhere = "/mnt/elsewhere" // a mount point
	other     = "/mnt/other"     // a directory that looks like a disk's, except for the UUID file
)

var actions = []action{
	{name: "unmount", mayBeRefused: true, take: func(s *scene, l *live) {
		if err := unix.Unmount(l.at(l.path), 0); !errors.Is(err, unix.EBUSY) {
			require.NoError(s.t, err)
			return
		}
		s.refused = true
	}},
	{name: "lazy unmount", take: func(s *scene, l *live) { s.detach(l) }},
	{name: "lazy unmount with a mount inside", take: func(s *scene, l *live) {
		inside := filepath.Join(l.at(l.path), "inside")
		require.NoError(s.t, os.MkdirAll(inside, 0o700))
		require.NoError(s.t, unix.Mount("inside", inside, "tmpfs", 0, ""))
		s.detach(l)
	}},
	{name: "recursive lazy unmount of what lies over it and of it", take: func(s *scene, l *live) {
		s.cover(l, "", s.tmpfs)
		s.detach(l)
		s.detach(l)
	}},
	{name: "a tmpfs over it", take: func(s *scene, l *live) { s.cover(l, "", s.tmpfs) }},
	{name: "an empty file system over it", take: func(s *scene, l *live) { s.cover(l, "", s.device(s.empty)) }},
	{name: "another disk over it", take: func(s *scene, l *live) { s.cover(l, "", s.device(s.foreign)) }},
	{name: "a clone over it", isDisk: true, take: func(s *scene, l *live) {
		l.churn.stop() // otherwise it would find the requested disk, and write to it
		s.cover(l, "", s.clone(l))
	}},
	{name: "a tmpfs over its replicas", take: func(s *scene, l *live) { s.cover(l, "replicas", s.tmpfs) }, undo: func(s *scene, l *live) {
		s.h.clear(l.path + "/replicas")
	}},
	{name: "a bind of another directory over it", take: func(s *scene, l *live) {
		require.NoError(s.t, unix.Mount(s.h.at(other), l.at(l.path), "", unix.MS_BIND, ""))
	}},
	{name: "a bind of the other disk over it", take: func(s *scene, l *live) {
		o := s.other(l)
		require.NoError(s.t, unix.Mount(o.at(o.path), l.at(l.path), "", unix.MS_BIND, ""))
	}},
	{name: "move to another path", take: func(s *scene, l *live) {
		require.NoError(s.t, unix.Mount(l.at(l.path), s.h.at(elsewhere), "", unix.MS_BIND, ""))
		s.detach(l)
	}, undo: func(s *scene, _ *live) { s.h.clear(elsewhere) }},
	{name: "the two disks swapped", both: true, take: func(s *scene, l *live) {
		o := s.other(l)
		s.detach(l)
		s.detach(o)
		o.mountOn(o.device, l.path)
		l.mountOn(l.device, o.path)
	}},
	{name: "another directory renamed into the place of the one above it", take: func(s *scene, l *live) {
		above := filepath.Dir(l.path)
		require.NoError(s.t, os.Rename(s.h.at(above), s.h.at(above)+".away"))
		require.NoError(s.t, os.Rename(s.h.at(above)+".new", s.h.at(above)))
	}, undo: func(s *scene, l *live) {
		above := filepath.Dir(l.path)
		require.NoError(s.t, os.Rename(s.h.at(above), s.h.at(above)+".new"))
		require.NoError(s.t, os.Rename(s.h.at(above)+".away", s.h.at(above)))
	}},
	{name: "another UUID file", take: func(s *scene, l *live) {
		name := filepath.Join(l.at(l.path), "longhorn-disk.cfg")
		require.NoError(s.t, os.WriteFile(name+".new", []byte(`{"diskUUID":"`+strings.Repeat("1", 8)+l.uuid[8:]+`"}`), 0o600))
		require.NoError(s.t, os.Rename(name+".new", name))
	}, undo: func(_ *scene, l *live) { l.prepare() }},
	{name: "a new file system made and mounted", take: func(s *scene, l *live) {
		s.detach(l)
		s.lost(l)
		l.isFree() // otherwise it could not be created
		l.h().mkfs(l.device, l.fsType)
		l.mount()
		l.content = newContent(l.content.mark)
	}, undo: func(s *scene, l *live) {
		l.prepare()
		s.remakes = true
	}},
	{name: "unmounted while the process was dead", kills: true, take: func(s *scene, l *live) {
		s.manager.kill()
		require.NoError(s.t, poll("the disk is in use", func() error { return unix.Unmount(l.at(l.path), 0) }))
		s.manager.start()
	}},
}

// detach unmounts a disk, even while it is in use.
func (s *scene) detach(l *live) {
	s.t.Helper()
	require.NoError(s.t, unix.Unmount(l.at(l.path), unix.MNT_DETACH))
}

// cover mounts something over a disk or a directory of it, and records its content.
func (s *scene) cover(l *live, below string, mount func(point string)) {
	s.t.Helper()
	point := s.h.coverPoint()
	mount(point)
	s.covering, s.covered = point, usageOf(s.t, point)
	require.NoError(s.t, unix.Mount(point, filepath.Join(l.at(l.path), below), "", unix.MS_BIND, ""))
}

// coverPoint is the path at which the test itself sees the mount over a disk.
func (h *host) coverPoint() string { return filepath.Join(h.top, "cover") }

// uncover checks that nothing was written to the mount over a disk.
func (s *scene) uncover(what string) {
	s.t.Helper()
	if s.covering == "" {
		return
	}
	assert.Empty(s.t, s.covered.differs(usageOf(s.t, s.covering)), "%s: in what was mounted over the disk", what)
	require.NoError(s.t, unix.Unmount(s.covering, unix.MNT_DETACH))
	s.covering = ""
}

func (s *scene) tmpfs(point string) {
	require.NoError(s.t, unix.Mount("over", point, "tmpfs", 0, "size=16m"))
	require.NoError(s.t, os.Mkdir(filepath.Join(point, "replicas"), 0o700))
}

// device mounts an ext4.
func (s *scene) device(device string) func(point string) {
	return func(point string) { require.NoError(s.t, unix.Mount(device, point, "ext4", 0, "")) }
}

// clone mounts a byte-for-byte copy of a disk in its present state.
func (s *scene) clone(l *live) func(point string) {
	return func(point string) {
		dir, err := os.Open(l.at(l.path))
		require.NoError(s.t, err)
		require.NoError(s.t, errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()))
		image := l.image + ".clone"
		run(s.t, "cp", "--sparse=always", l.image, image)
		device := run(s.t, "losetup", "--find", "--show", image)
		options := ""
		if l.fsType == "xfs" {
			options = "nouuid"
		}
		require.NoError(s.t, unix.Mount(device, point, l.fsType, 0, options))
		run(s.t, "losetup", "--detach", device) // takes effect when it is unmounted
	}
}
