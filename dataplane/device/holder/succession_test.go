package holder

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// successions is how often the serving process is killed under load.
func successions() int {
	if os.Getenv("LONG") != "" {
		return 100
	}
	return 12
}

// user writes and reads its own blocks with direct I/O. It knows the expected content of each block.
type user struct {
	t     *testing.T
	fd    int
	first int64
	seqs  []uint64
	page  []byte
}

const blockBytes = 4096

func (u *user) run(stop *atomic.Bool, requests *atomic.Int64) {
	rnd := rand.New(rand.NewPCG(uint64(u.first), 1))
	for seq := uint64(1); !stop.Load() && !u.t.Failed(); seq++ {
		b := rnd.IntN(len(u.seqs))
		for i := 0; i < blockBytes; i += 16 {
			binary.LittleEndian.PutUint64(u.page[i:], seq)
			binary.LittleEndian.PutUint64(u.page[i+8:], uint64(u.first)+uint64(b))
		}
		if n, err := unix.Pwrite(u.fd, u.page, u.at(b)); err != nil || n != blockBytes {
			u.t.Errorf("write of block %d: %d, %v", b, n, err)
			return
		}
		u.seqs[b] = seq
		u.check(rnd.IntN(len(u.seqs)))
		requests.Add(2)
	}
}

func (u *user) at(block int) int64 { return (u.first + int64(block)) * blockBytes }

// check reads a block, which must contain the data that was written last.
func (u *user) check(b int) {
	if n, err := unix.Pread(u.fd, u.page, u.at(b)); err != nil || n != blockBytes {
		u.t.Errorf("read of block %d: %d, %v", b, n, err)
		return
	}
	for i := 0; i < blockBytes; i += 16 {
		seq, place := binary.LittleEndian.Uint64(u.page[i:]), binary.LittleEndian.Uint64(u.page[i+8:])
		if want := u.seqs[b]; seq != want || want > 0 && place != uint64(u.first)+uint64(b) {
			u.t.Errorf("block %d holds write %d of block %d at byte %d, not write %d", u.first+int64(b), seq, place, i, want)
			return
		}
	}
}

// The serving process is killed repeatedly while users do direct I/O on one half of the device. None of the users sees
// an error or a wrong block.
func TestUsersOfADeviceNoticeNoSuccession(t *testing.T) {
	r := newRig(t)
	s := r.serving(0)
	if !s.Successions {
		t.Skip("this kernel sends no requests again")
	}
	fd, err := unix.Open(r.path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	var stop atomic.Bool
	var requests atomic.Int64
	var users sync.WaitGroup
	all := []*user{}
	for n := range 8 {
		page, err := unix.Mmap(-1, 0, blockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		require.NoError(t, err)
		u := &user{t: t, fd: fd, first: int64(n) * 512, seqs: make([]uint64, 512), page: page}
		all = append(all, u)
		users.Go(func() { u.run(&stop, &requests) })
	}
	for range successions() {
		time.Sleep(time.Duration(200+rand.IntN(300)) * time.Millisecond) // load between two deaths
		require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
		s = r.serving(s.PID)
	}
	stop.Store(true)
	users.Wait()
	for _, u := range all {
		for b := range u.seqs {
			u.check(b)
		}
	}
	t.Logf("%d requests", requests.Load())
	assert.GreaterOrEqual(t, s.Restarts, successions())
	held := s.Devices[0]
	_ = unix.Close(fd)
	assert.NoError(t, r.terminate(), "the holder")
	r.expectNothingLeft(held, false)
}

// A file system on the device keeps working: each synced record exists, nothing was mounted again, and the check finds
// no error.
func TestAFileSystemSurvivesSuccessions(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	r := newRig(t)
	s := r.serving(0)
	if !s.Successions {
		t.Skip("this kernel sends no requests again")
	}
	execute(t, "mkfs.ext4", "-q", r.path())
	mounted := filepath.Join(r.dir, "mounted")
	require.NoError(t, os.Mkdir(mounted, 0o700))
	require.NoError(t, unix.Mount(r.path(), mounted, "ext4", 0, "errors=remount-ro"))
	defer func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) }()
	file, err := os.OpenFile(filepath.Join(mounted, "records"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	require.NoError(t, err)
	var stop atomic.Bool
	var writing sync.WaitGroup
	written := 0
	writing.Go(func() {
		for ; !stop.Load(); written++ {
			if _, err := fmt.Fprintf(file, "%9d\n", written); err != nil {
				t.Errorf("record %d: %v", written, err)
				return
			}
			if err := file.Sync(); err != nil {
				t.Errorf("sync of record %d: %v", written, err)
				return
			}
		}
	})
	for range successions() / 2 {
		time.Sleep(time.Duration(200+rand.IntN(300)) * time.Millisecond) // load between two deaths
		require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
		s = r.serving(s.PID)
	}
	stop.Store(true)
	writing.Wait()
	require.NoError(t, file.Close())
	require.NoError(t, unix.Unmount(mounted, 0))
	require.NoError(t, unix.Mount(r.path(), mounted, "ext4", unix.MS_RDONLY, ""))
	got, err := os.ReadFile(filepath.Join(mounted, "records"))
	require.NoError(t, err)
	assert.Len(t, got, written*10, "bytes of %d records", written)
	for i := 0; i+10 <= len(got); i += 10 {
		want := fmt.Sprintf("%9d\n", i/10)
		require.Equal(t, want, string(got[i:i+10]), "record %d", i/10)
	}
	require.NoError(t, unix.Unmount(mounted, 0))
	execute(t, "fsck.ext4", "-fn", r.path())
	t.Logf("%d records", written)
}
