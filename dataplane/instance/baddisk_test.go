package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// badDevice is a block device. While it is bad, writes beyond badFrom fail. Its content stays.
type badDevice struct {
	*memory.Backend
	bad atomic.Bool
}

const (
	badFrom  = 8 * mib
	badBytes = 256 * mib
)

func (b *badDevice) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	if b.bad.Load() && off > badFrom {
		return nbd.EIO
	}
	return b.Backend.WriteAt(ctx, p, off, fua)
}

// newBadDisk returns a disk for replicas on a bad device, which works at first. gone removes it.
func newBadDisk(t *testing.T) (b *badDevice, d *replica.Disk, point string, gone func()) {
	t.Helper()
	b = &badDevice{Backend: memory.New(badBytes)}
	local := device.NewLocal(device.Options{DeviceDir: t.TempDir(), NoNBD: "a test", Node: "test"})
	f := device.NewFrontend(device.FrontendOptions{Keeper: local.Session(), Owner: device.Owner{Engine: "e", Generation: 1, Session: "s"}})
	path, err := f.Start(t.Context(), "vol-1", badBytes, b)
	if err != nil {
		mountns.Missing(t, "a block device of this process: "+err.Error())
	}
	out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-O", "^has_journal", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	point = t.TempDir()
	require.NoError(t, unix.Mount(path, point, "ext4", 0, ""))
	d = newDiskIn(t, point)
	return b, d, point, func() {
		_ = d.Close()
		assert.NoError(t, unix.Unmount(point, unix.MNT_DETACH))
		assert.NoError(t, f.Abort(context.Background()))
	}
}

func newDiskIn(t *testing.T, point string) *replica.Disk {
	t.Helper()
	const uuid = "7f3c2a52-6e0b-4a3e-9a60-0f6a8f6f0001"
	text, err := disk.EncodeConfig(disk.NewConfig("disk", uuid))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(point, disk.ConfigFileName), text, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(point, disk.ReplicasDirName), 0o700))
	d, err := replica.OpenDisk(fsys.Host{}, point, uuid)
	require.NoError(t, err)
	return d
}

// startEngine starts an engine of local replicas. The epochs that it proposes are recorded until apiDown is called.
func startEngine(t *testing.T, generation int64, recorded membership.Epoch, rs ...*replica.Replica) (e *engine.Engine, api *membership.Epoch, apiDown func()) {
	t.Helper()
	changed := make(chan struct{}, 1)
	cfg := engine.Config{
		Name: "e", Volume: "vol", Generation: generation, Session: fmt.Sprintf("s%d", generation), SizeBytes: rs[0].Size(), Recorded: recorded,
		QuietPeriod: time.Hour, // only users and starts cause flushes
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	}
	byName := map[string]*replica.Replica{}
	for _, r := range rs {
		byName[r.Name()] = r
		cfg.Members = append(cfg.Members, engine.Member{Name: r.Name(), Local: true})
	}
	cfg.Connect = func(ctx context.Context, m engine.Member) (engine.Replica, error) {
		return byName[m.Name].Admit(ctx, cfg.Generation, cfg.Session)
	}
	e = engine.Start(cfg)
	down, ended := make(chan struct{}), make(chan struct{})
	api = &recorded
	go func() {
		defer close(ended)
		for {
			select {
			case <-changed:
			case <-down:
				return
			}
			if p := e.State().ProposedEpoch; !p.IsZero() {
				*api = p
				_ = e.RecordEpoch(cfg.Session, p, nil)
			}
		}
	}()
	require.Eventually(t, func() bool { return e.State().Phase == engine.PhaseRunning }, patience, time.Millisecond, "the engine does not run")
	return e, api, func() { close(down); <-ended }
}

// A flush of one of two members fails while the API object cannot be written, and the engine's process exits. The next
// engine starts with both members. The kernel of the failed member shows content that its disk does not have. So the
// two members must not count as equal.
func TestMembersThatLookEqualInTheCacheAreMadeEqual(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	const length, piece = 32 * mib, 64 << 10
	dev, bad, point, gone := newBadDisk(t)
	defer gone()
	goodPoint := t.TempDir()
	good := newDiskIn(t, goodPoint)
	defer good.Close()
	spec := func(name string) replica.Spec {
		return replica.Spec{UID: "uid-" + name, Volume: "vol", Name: name, SizeBytes: 64 * mib}
	}
	dirA, dirB := filepath.Join(point, disk.ReplicasDirName, "a"), filepath.Join(goodPoint, disk.ReplicasDirName, "b")
	require.NoError(t, bad.Create(dirA, spec("a")))
	require.NoError(t, good.Create(dirB, spec("b")))
	open := func(d *replica.Disk, dir, name string, distrust bool) *replica.Replica {
		r, err := d.Open(dir, spec(name), replica.Options{BootID: "boot", Distrust: distrust})
		require.NoError(t, err)
		return r
	}
	a, b := open(bad, dirA, "a", false), open(good, dirB, "b", false)
	e, api, apiDown := startEngine(t, 1, membership.Epoch{}, a, b)
	users := e.Backend()
	for off := int64(0); off < length; off += mib {
		require.NoError(t, users.WriteAt(t.Context(), make([]byte, 512), off, false))
	}
	require.NoError(t, users.Flush(t.Context()))
	apiDown()
	written := bytes.Repeat([]byte{7}, piece)
	for off := int64(0); off < length; off += piece {
		require.NoError(t, users.WriteAt(t.Context(), written, off, false))
	}
	dev.bad.Store(true)
	flushed := make(chan error, 1)
	go func() { flushed <- users.Flush(context.Background()) }()
	require.Eventually(t, func() bool { return a.State().Failure != nil }, patience, time.Millisecond, "the disk did not fail")
	e.Interrupt() // the process is killed
	assert.Error(t, <-flushed)
	_ = e.StopForce(t.Context())
	dev.bad.Store(false)
	require.NoError(t, errors.Join(a.Close(t.Context()), b.Close(t.Context())))

	a, b = open(bad, dirA, "a", true), open(good, dirB, "b", false)
	e, _, apiDown = startEngine(t, 2, *api, a, b)
	defer apiDown()
	require.Len(t, e.State().Epoch.Members, 2)
	users = e.Backend()
	require.NoError(t, users.Flush(t.Context()))
	f, err := os.Open(filepath.Join(dirA, "data.img"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)) // simulates that the kernel needs the memory
	old := 0
	for off := int64(0); off < length; off += piece {
		got := make([]byte, piece)
		_, err := f.ReadAt(got, off)
		require.NoError(t, err)
		if !bytes.Equal(got, written) {
			old++
		}
	}
	assert.Zero(t, old, "pieces of the member that failed that have the bytes from before")
	require.NoError(t, e.Stop(t.Context()))
	require.NoError(t, errors.Join(a.Close(t.Context()), b.Close(t.Context())))
}
