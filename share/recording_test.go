package share

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// As Ganesha 4.3 says them.
	noDirectory = "25/11/2026 04:04:58 : epoch 1 : h : ganesha.nfsd-1[main] fs_create_recov_dir :CLIENT ID :EVENT :Failed to create v4 recovery dir(/run/recovery/v4recov/node0.cBVVZw): No space left on device (28)\n"
	noRecord    = "25/11/2026 04:04:59 : epoch 1 : h : ganesha.nfsd-1[svc_9] fs_add_clid :CLIENT ID :EVENT :Failed to create client in recovery dir (/run/recovery/v4recov/node0.cBVVZw/::ffff:127.0.0.1-(12:proof-client)), errno: No such file or directory (2)\n"
)

func TestAServerThatCannotRecordItsClientsIsReported(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		lines []string // "" is the start of the next server
		want  string   // reason and message
	}{
		"all in order → nothing":                              {[]string{"ganesha.nfsd-1[main] x :CLIENT ID :EVENT :check grace", "Failed to create client"}, ""},
		"no directory → the next server will not know them":   {[]string{noDirectory}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No space left on device (28)"},
		"no record → the same":                                {[]string{noRecord}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No such file or directory (2)"},
		"both → reported once, as the first":                  {[]string{noDirectory, noRecord, noRecord}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No space left on device (28)"},
		"the next server of the pod starts → clients lost it": {[]string{noDirectory, ""}, "RecoveryDataMissing the server before this one could not record its clients on the volume"},
		"that one cannot either → it is said, too":            {[]string{noDirectory, "", noRecord}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No such file or directory (2)"},
		"a server starts after one that could → nothing":      {[]string{""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var told []types.ShareRecovery
			r := &recording{since: start, tell: func(f types.ShareRecovery) { told = append(told, f) }, log: quiet()}
			for _, line := range c.lines {
				if line == "" {
					r.serverStarts()
				} else {
					r.hear([]byte(line))
				}
			}
			r.report(start.Add(askedBy - time.Second))
			assert.Empty(t, told, "what was found at the start has not been asked for yet")
			r.report(start.Add(askedBy))
			r.report(start.Add(askedBy + time.Second))
			if c.want == "" {
				assert.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			assert.Equal(t, c.want, told[0].Reason+" "+told[0].Message)
			assert.NotEmpty(t, told[0].Incident)
		})
	}
}

func TestTheAnswerOfAShareFollowsWhatItFindsLater(t *testing.T) {
	var s recoveryService
	_, err := s.Recovery(t.Context(), nil)
	require.Error(t, err, "nothing is known yet")
	s.grown(os.ErrPermission)
	s.found(types.ShareRecovery{})
	ask := func() types.ShareRecovery {
		t.Helper()
		r, err := s.Recovery(t.Context(), nil)
		require.NoError(t, err)
		return recoveryOf(r)
	}
	assert.Equal(t, types.ShareRecovery{NotGrown: os.ErrPermission.Error()}, ask())
	s.limited(os.ErrInvalid)
	assert.Equal(t, types.ShareRecovery{NotGrown: os.ErrPermission.Error(), NotLimited: os.ErrInvalid.Error()}, ask())
	s.limited(nil)
	s.grown(nil)
	assert.Equal(t, types.ShareRecovery{}, ask())
	s.found(types.ShareRecovery{Incident: "one", Reason: types.ReasonRecoveryDataUnusable, Message: "full", FoundAt: time.Unix(7, 0)})
	s.grown(os.ErrPermission)
	assert.Equal(t, types.ShareRecovery{Incident: "one", Reason: types.ReasonRecoveryDataUnusable, Message: "full", FoundAt: time.Unix(7, 0), NotGrown: os.ErrPermission.Error()}, ask())
}

// fill takes all inodes of a file system but those of the ballast.
func fill(t *testing.T, dir string) {
	t.Helper()
	for i := 0; ; i++ {
		err := unix.Mkdir(filepath.Join(dir, "filler"+strings.Repeat("x", i%7)+time.Duration(i).String()), 0o700)
		if err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			return
		}
	}
}

func TestRoomForRecordsIsKeptAndGivenUpWhereNoneIsLeft(t *testing.T) {
	if os.Getuid() != 0 {
		mountns.Missing(t, "root")
	}
	if !mountns.Own(t) {
		return
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=32m,nr_inodes=600"))
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	b := ballast{recovery: dir, log: quiet()}
	count := func() int {
		kept, _ := os.ReadDir(filepath.Join(dir, ballastName))
		return len(kept)
	}
	b.keep()
	assert.Equal(t, ballastCount, count())
	b.giveUp()
	assert.Equal(t, ballastCount, count(), "there is other room")
	fill(t, dir)
	require.ErrorIs(t, unix.Mkdir(filepath.Join(dir, "v4recov"), 0o700), unix.ENOSPC)
	b.keep()
	assert.Equal(t, ballastCount, count())
	b.giveUp()
	assert.Zero(t, count())
	require.NoError(t, unix.Mkdir(filepath.Join(dir, "v4recov"), 0o700))
	b.keep()
	assert.Zero(t, count(), "there is no room to spare")
	require.NoError(t, dropForeign(dir))
}

// The server of a share records its clients although the file system is full.
func TestAServerOnAFullFileSystemRecordsItsClients(t *testing.T) {
	if !own(t) {
		return
	}
	image := newImage(t, 64<<20)
	dir := t.TempDir()
	r := startRole(t, dir, loopDevice(t, image), nil)
	r.await(sayServed, 1)
	records := filepath.Join(dir, "run", "recovery")
	ballast{recovery: records, log: quiet()}.keep()
	require.DirExists(t, filepath.Join(records, ballastName, "00"))
	r.write("file", "data")
	fill(t, r.o.target())
	r.terminate()
	elsewhere := t.TempDir()
	again := startRole(t, elsewhere, loopDevice(t, image), func(o *Options) { o.ExportRoot = r.o.ExportRoot })
	again.await("room that was kept for the records of clients is given up", 1)
	again.await(sayServed, 1)
	again.wantRead("file", "data")
	assert.NotContains(t, again.out.String(), "No space left on device")
	assert.NotContains(t, again.out.String(), "cannot record its clients")
	recorded, err := filepath.Glob(filepath.Join(elsewhere, "run", "recovery", recordsName, "node0.*", "*"))
	require.NoError(t, err)
	assert.NotEmpty(t, recorded)
	again.terminate()
}
