package share

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

// own prepares a test with real servers: in its own mount namespace, which the roles share, each with its own network.
// If there is an image, the test uses its commands and its server.
func own(t *testing.T) bool {
	t.Helper()
	mountns.Needs(t, "ganesha.nfsd", "nfs-cp", "nfs-cat", "nfs-ls", "losetup", "nsenter", "ip", "mkfs.ext4", "mkfs.xfs", "blkid")
	if !mountns.Own(t) {
		return false
	}
	mountns.EnterImage(t)
	return true
}

func TestAShareIsServedThroughTheDeathsOfItsServer(t *testing.T) {
	if !own(t) {
		return
	}
	dir := t.TempDir()
	image := newImage(t, 256<<20)
	r := startRole(t, dir, loopDevice(t, image), func(o *Options) { o.Lease, o.Grace = 8*time.Second, 8*time.Second })
	r.await(sayServed, 1)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(r.o.target(), &st))
	assert.Equal(t, uint32(0o777), st.Mode&0o7777, "rights of a new file system")
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	require.NoError(t, err)
	assert.Regexp(t, " "+regexp.QuoteMeta(r.o.target())+" .*,dirsync", string(mounts), "directories are durable before a change of them is answered")
	r.write("file", "data")
	r.wantRead("file", "data")
	showMemory(t, r)
	assert.Equal(t, []int{2049, 9600}, r.listening(), "no port but that of NFS and that of the health service")

	first := r.ganesha()
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	r.await(sayServed, 2)
	assert.NotEqual(t, first, r.ganesha())
	r.wantRead("file", "data")

	r.inSilence(func() { r.await(sayKilled, 1) })
	r.await(sayServed, 3)
	wantSuspendedKilled(t, r)
	r.wantRead("file", "data")
	r.write("other", "more")
	handle := r.handle()

	r.terminate()
	wantNothingMounted(t, dir)
	left, err := os.ReadDir(r.o.ExportRoot)
	require.NoError(t, err)
	assert.Empty(t, left)

	elsewhere := t.TempDir()
	// as on another node: only the volume is the same
	again := startRole(t, elsewhere, loopDevice(t, image), func(o *Options) {
		o.ExportRoot = r.o.ExportRoot
	})
	again.await(sayServed, 1)
	assert.Contains(t, r.out.String(), sayNoRecords)
	assert.NotContains(t, again.out.String(), sayNoRecords)
	assert.Contains(t, again.out.String(), "IN GRACE")
	again.awaitSomeClients()
	assert.Equal(t, handle, again.handle(), "the file handle of the root")
	again.wantRead("file", "data")
	again.wantRead("other", "more")
	again.terminate()
	wantNothingMounted(t, dir)
	wantNothingMounted(t, elsewhere)
	wantGrowingEpochs(t, 5, r.out.String()+again.out.String())
}

const (
	sayKilled   = "The NFS server does not answer. The share manager kills it"
	sayNoAnswer = "The NFS server did not answer"
)

// inSilence runs f while no question reaches the server: the link of the share manager's questions is down.
func (r *role) inSilence(f func()) {
	r.t.Helper()
	link := func(state string) {
		out, err := r.inside("", "ip", "link", "set", "lo", state)
		require.NoError(r.t, err, out)
	}
	link("down")
	f()
	link("up")
}

// wantSuspendedKilled: a server with a stopped process is killed and replaced before any question remains without an
// answer.
func wantSuspendedKilled(t *testing.T, r *role) {
	t.Helper()
	killed, silences, served := strings.Count(r.out.String(), sayKilled), strings.Count(r.out.String(), sayNoAnswer), strings.Count(r.out.String(), sayServed)
	server := r.ganesha()
	require.NoError(t, syscall.Kill(server, syscall.SIGSTOP))
	r.await(sayKilled, killed+1)
	assert.Equal(t, silences, strings.Count(r.out.String(), sayNoAnswer), "a question had to go unanswered")
	assert.Contains(t, r.out.String(), errSuspended.Error())
	r.await(sayServed, served+1)
	assert.NotEqual(t, server, r.ganesha())
}

// wantGrowingEpochs: each server has a greater epoch than the previous one, however soon it started.
func wantGrowingEpochs(t *testing.T, servers int, logs string) {
	t.Helper()
	started := regexp.MustCompile(`epoch ([0-9a-f]{8}) .*nfs-ganesha Starting`).FindAllStringSubmatch(logs, -1)
	require.Len(t, started, servers)
	last := uint64(0)
	for _, m := range started {
		epoch, err := strconv.ParseUint(m[1], 16, 32)
		require.NoError(t, err)
		assert.Greater(t, epoch, last)
		last = epoch
	}
}

// TestTheFirstProcessOfAContainer: a share manager alone in its namespaces, as in a pod.
func TestTheFirstProcessOfAContainer(t *testing.T) {
	if !own(t) {
		return
	}
	image := newImage(t, 64<<20)
	r := startRoleAs(t, t.TempDir(), loopDevice(t, image), nil, syscall.CLONE_NEWPID|syscall.CLONE_NEWNS)
	r.await(sayServed, 1)
	r.write("file", "data")
	// The shell exits before its child, which becomes a child of the first process.
	r.within("sh", "-c", "sleep 0.2 & exit 0")
	pid := strconv.Itoa(r.cmd.Process.Pid)
	require.Eventually(t, func() bool { return strings.Contains(r.processes(), " Z ") }, patience, 50*time.Millisecond, "the orphan of %s", pid)
	require.Eventually(t, func() bool { return !strings.Contains(r.processes(), " Z ") }, patience, 50*time.Millisecond, "%s", r.processes())
	r.terminate()

	again := startRole(t, t.TempDir(), loopDevice(t, image), nil)
	again.await(sayServed, 1)
	again.wantRead("file", "data")
	again.terminate()
}

// showMemory logs the memory of an idle share.
func showMemory(t *testing.T, r *role) {
	for name, pid := range map[string]int{"share manager": r.cmd.Process.Pid, "ganesha.nfsd": r.ganesha()} {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		require.NoError(t, err)
		for _, line := range strings.Split(string(status), "\n") {
			if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
				t.Log(name, strings.Join(strings.Fields(line), " "))
			}
		}
	}
}

// wantNothingMounted checks for mounts below a directory.
func wantNothingMounted(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), dir)
}

func TestClientsDoNotReachTheRecoveryData(t *testing.T) {
	if !own(t) {
		return
	}
	dir := t.TempDir()
	image := newImage(t, 64<<20)
	r := startRole(t, dir, loopDevice(t, image), nil)
	r.await(sayServed, 1)
	r.write("file", "data")
	records, err := filepath.Glob(filepath.Join(r.o.RuntimeDirectory, "recovery", "v4recov", "node0.*", "*"))
	require.NoError(t, err)
	assert.NotEmpty(t, records, "no client was recorded")
	out, err := r.inside("", "nfs-ls", url(".longhorn-share"))
	require.Error(t, err)
	assert.Contains(t, out, "NFS4ERR_NOENT")
	r.terminate()

	// A user of the volume has replaced the records by a link to another place.
	device, mounted, elsewhere := loopDevice(t, image), filepath.Join(dir, "mounted"), filepath.Join(dir, "elsewhere")
	require.NoError(t, os.Mkdir(mounted, 0o700))
	require.NoError(t, os.Mkdir(elsewhere, 0o700))
	run(t, "mount", device, mounted)
	require.NoError(t, os.RemoveAll(filepath.Join(mounted, ganesha.RecoveryName, "v4recov")))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(mounted, ganesha.RecoveryName, "v4recov")))
	run(t, "umount", mounted)
	r = startRole(t, dir, device, nil)
	r.await(sayServed, 1)
	assert.Contains(t, r.out.String(), sayNoRecords)
	r.write("other", "data")
	r.terminate()
	led, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	assert.Empty(t, led)
}

func TestAPausedShareManagerStopsServing(t *testing.T) {
	if !own(t) {
		return
	}
	dir := t.TempDir()
	r := startRole(t, dir, loopDevice(t, newImage(t, 64<<20)), nil)
	r.await(sayServed, 1)
	server := r.ganesha()
	for _, pid := range []int{r.cmd.Process.Pid, server} {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	time.Sleep(r.o.Lease + 2*time.Second) // it must be longer than the lease
	for _, pid := range []int{server, r.cmd.Process.Pid} {
		require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	}
	assert.Equal(t, 1, r.end())
	assert.Contains(t, r.out.String(), "did not run for longer than the lease")
	assert.ErrorIs(t, syscall.Kill(server, 0), syscall.ESRCH, "its server still runs")
	wantNothingMounted(t, dir)
}

func TestAServerEndsWithItsShareManager(t *testing.T) {
	if !own(t) {
		return
	}
	dir := t.TempDir()
	r := startRole(t, dir, loopDevice(t, newImage(t, 64<<20)), nil)
	r.await(sayServed, 1)
	server := r.ganesha()
	require.NoError(t, r.cmd.Process.Kill())
	r.end()
	require.Eventually(t, func() bool { return syscall.Kill(server, 0) != nil || isZombie(server) }, patience, 20*time.Millisecond)
	for _, mounted := range []string{filepath.Join(r.o.target(), ganesha.RecoveryName), filepath.Join(r.o.RuntimeDirectory, "recovery"), r.o.target(), r.o.ExportRoot} {
		// threads of a zombie may still exit
		require.Eventually(t, func() bool { return unix.Unmount(mounted, 0) == nil }, patience, 20*time.Millisecond,
			"%s stays in use", mounted)
	}
}

func TestTheFileSystemGrowsWithItsDevice(t *testing.T) {
	if !own(t) {
		return
	}
	image := newImage(t, 320<<20)
	device := loopDevice(t, image)
	r := startRole(t, t.TempDir(), device, func(o *Options) { o.FSType = "xfs" })
	r.await(sayServed, 1)
	require.NoError(t, os.Truncate(image, 640<<20))
	run(t, "losetup", "--set-capacity", device)
	r.await("The file system has grown to fill its device", 1)
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(r.o.target(), &st))
	assert.Greater(t, int64(st.Blocks)*st.Bsize, int64(500<<20))
	r.terminate()
}

func TestExistingDataOnADeviceStays(t *testing.T) {
	if !own(t) {
		return
	}
	write := func(offset int64, data ...byte) func(*testing.T, string) {
		return func(t *testing.T, image string) {
			f, err := os.OpenFile(image, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt(data, offset)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	for _, c := range []struct {
		name   string
		fill   func(*testing.T, string)
		device func(*testing.T, string) string
		change func(*Options)
		says   string
	}{
		{name: "a partition table", fill: func(t *testing.T, image string) {
			write(446, 0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0)(t, image)
			write(510, 0x55, 0xaa)(t, image)
		}, says: ErrForeign.Error()},
		{name: "an encrypted device", fill: write(0, 'L', 'U', 'K', 'S', 0xba, 0xbe, 0, 1), says: ErrForeign.Error()},
		{name: "swap space", fill: func(t *testing.T, image string) { run(t, "mkswap", image) }, says: ErrForeign.Error()},
		{name: "a device that cannot be read", device: func(t *testing.T, image string) string {
			device := loopDevice(t, image)
			require.NoError(t, os.Truncate(image, 0))
			return device
		}, says: "device cannot be read"},
		{name: "a device that takes no writes", device: func(t *testing.T, image string) string {
			return loopDevice(t, image, "--read-only")
		}, says: ErrReadOnlyDevice.Error()},
		{name: "a plain file", device: func(_ *testing.T, image string) string { return image }, says: ErrWrongDevice.Error()},
		{name: "nothing, for a share that is read-only", change: func(o *Options) { o.ReadOnly = true }, says: ErrBlank.Error()},
		{
			name: "nothing, with options that mkfs may not be given", change: func(o *Options) { o.MkfsParams = []string{"-d", "/etc"} },
			says: `parameter mkfsParams: value "-d /etc" has the option "-d", which mkfs.ext4 may not be given`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := newImage(t, 64<<20)
			if c.fill != nil {
				c.fill(t, image)
			}
			before := sum(t, image)
			var device string
			if c.device != nil {
				device = c.device(t, image)
				before = sum(t, image)
			} else {
				device = loopDevice(t, image)
			}
			dir := t.TempDir()
			r := startRole(t, dir, device, c.change)
			assert.Equal(t, 1, r.end())
			assert.Contains(t, r.out.String(), c.says)
			assert.Equal(t, before, sum(t, image), "the device was written")
			wantNothingMounted(t, dir)
		})
	}
}

func TestAnExistingFileSystemIsServedUnchanged(t *testing.T) {
	if !own(t) {
		return
	}
	for _, c := range []struct {
		name, mkfs, wanted string
		sizeBytes          int64
		readOnly           bool
	}{
		{"ext4 where xfs is asked for", "mkfs.ext4", "xfs", 64 << 20, false},
		{"xfs where ext4 is asked for", "mkfs.xfs", "ext4", 320 << 20, false},
		{"read-only", "mkfs.ext4", "ext4", 64 << 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			image := newImage(t, c.sizeBytes)
			device := loopDevice(t, image)
			run(t, c.mkfs, device)
			mounted := filepath.Join(dir, "mounted")
			require.NoError(t, os.Mkdir(mounted, 0o700))
			run(t, "mount", device, mounted)
			require.NoError(t, os.WriteFile(filepath.Join(mounted, "file"), []byte("data"), 0o644))
			require.NoError(t, os.Chown(mounted, 1000, 1000))
			run(t, "umount", mounted)
			before := sum(t, image)
			r := startRole(t, dir, device, func(o *Options) {
				o.FSType, o.ReadOnly = c.wanted, c.readOnly
				o.MkfsParams = []string{"-d", "/etc"} // which no mkfs may get: none is called
			})
			r.await(sayServed, 1)
			r.wantRead("file", "data")
			var st unix.Stat_t
			require.NoError(t, unix.Stat(r.o.target(), &st))
			assert.Equal(t, uint32(0o755), st.Mode&0o7777, "rights that someone has set")
			r.terminate()
			wantNothingMounted(t, dir)
			if c.readOnly {
				assert.Equal(t, before, sum(t, image), "the device was written")
			}
		})
	}
}

func sum(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}
