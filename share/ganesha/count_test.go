package ganesha

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestCount(t *testing.T) {
	const one, two = "::ffff:169.254.99.1-(3:one)", "169.254.99.1-(6:0x7477)"
	long := strings.Repeat("x", 300)
	head, tail := "::ffff:169.254.99.1-(300:"+long[:200], long[200:]+")"
	for name, tc := range map[string]struct {
		dirs  []string // beneath the records in force
		files []string
		want  int
	}{
		"no client":                  {},
		"two clients":                {dirs: []string{one, two}, want: 2},
		"a name in pieces":           {dirs: []string{head + "/" + tail}, want: 1},
		"two names that begin alike": {dirs: []string{head + "/" + tail, head + "/" + strings.Repeat("y", 100) + ")"}, want: 2},
		"a record that is not finished, or half removed → no client holds anything by it": {dirs: []string{one, head}, want: 1},
		"pieces that are not finished":                                                     {dirs: []string{head + "/" + long[200:250]}},
		"file handles that were taken back are within the record of their client":          {dirs: []string{one + "/" + revoked + "handle"}, want: 1},
		"a directory with a name that Ganesha cannot read → a client it does not wait for": {dirs: []string{one, "damaged"}, want: 2},
		"a name that is longer than it says":                                               {dirs: []string{"::ffff:169.254.99.1-(2:one)"}, want: 1},
		"a file in place of a record, which Ganesha does not read":                         {dirs: []string{one}, files: []string{two}, want: 2},
		"another file": {dirs: []string{one}, files: []string{"file"}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			current := filepath.Join(dir, RecordsName, "node0.ABCDEF")
			require.NoError(t, os.MkdirAll(current, 0o700))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, RecordsName, "node0.UVWXYZ", "::ffff:169.254.99.1-(5:other)"), 0o700), "not in force")
			require.NoError(t, os.Symlink("node0.ABCDEF", filepath.Join(dir, RecordsName, linkName)))
			for _, d := range tc.dirs {
				require.NoError(t, os.MkdirAll(filepath.Join(current, d), 0o700))
			}
			for _, f := range tc.files {
				require.NoError(t, os.WriteFile(filepath.Join(current, f), nil, 0o600))
			}
			got, err := Count(dir)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}

	got, err := Count(t.TempDir())
	require.NoError(t, err, "a new volume")
	assert.Zero(t, got)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, RecordsName), nil, 0o600))
	_, err = Count(dir)
	require.ErrorIs(t, err, unix.ENOTDIR)
}

const (
	// The lines of Ganesha 4.3, and of 9.14.
	readThree4 = "27/11/2026 01:51:36 : epoch 6b08e229 : vm : nfs-ganesha-3660[main] nfs_try_lift_grace :STATE :EVENT :check grace:reclaim complete(0) clid count(3)\n"
	readThree9 = "27/11/2026 01:51:34 : epoch 6b08e226 : vm : nfs-ganesha-3521[main] nfs_try_lift_grace :RECOVERY :EVENT :check grace:reclaim complete(0) clid count(3)\n"
	graceEnds4 = "27/11/2026 01:51:36 : epoch 6b08e229 : vm : nfs-ganesha-3660[reaper] nfs_lift_grace_locked :STATE :EVENT :NFS Server Now NOT IN GRACE\n"
	graceEnds9 = "27/11/2026 01:50:19 : epoch 6b08e1db : vm : nfs-ganesha-1956[reaper] nfs_lift_grace_locked :RECOVERY :EVENT :NFS Server Now NOT IN GRACE\n"
	forgedRead = "27/11/2026 01:51:36 : epoch 6b08e229 : vm : nfs-ganesha-3660[svc_5] fs_create_clid_name :CLIENT ID :DEBUG :Created client name [x[y] nfs_try_lift_grace :STATE :EVENT :check grace:reclaim complete(0) clid count(0)]\n"
	forgedEnd  = "27/11/2026 01:51:36 : epoch 6b08e229 : vm : nfs-ganesha-3660[svc_5] fs_create_clid_name :CLIENT ID :DEBUG :Created client name [NFS Server Now NOT IN GRACE]\n"
	graceStart = "27/11/2026 01:51:36 : epoch 6b08e229 : vm : nfs-ganesha-3660[main] nfs_start_grace :STATE :EVENT :NFS Server Now IN GRACE, duration 60\n"
)

func TestAServerThatReadsFewerRecordsIsReported(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		records []int // at the start of each server
		lines   []string
		before  bool // a loss was found before the first server
		want    string
		soon    bool
	}{
		"all were read":                       {[]int{3}, []string{graceStart, readThree9, graceEnds9}, false, "", false},
		"more were read":                      {[]int{2}, []string{readThree9}, false, "", false},
		"it is not known how many there were": {[]int{NotKnown}, []string{graceEnds9}, false, "", false},
		"there were none":                     {[]int{0}, []string{graceEnds9}, false, "", false},
		"9.14 read fewer":                     {[]int{4}, []string{graceStart, readThree9, graceEnds9}, false, "3 of 4", true},
		"4.3 read fewer":                      {[]int{4}, []string{readThree4}, false, "3 of 4", true},
		"4.3 read none":                       {[]int{4}, []string{graceStart, graceEnds4}, false, "0 of 4", true},
		"9.14 read none":                      {[]int{4}, []string{graceStart, graceEnds9}, false, "0 of 4", true},
		"a client's name counts for nothing":  {[]int{4}, []string{forgedRead, forgedEnd}, false, "", false},
		"only the first words count: clients end in the grace period, too": {[]int{3}, []string{readThree9, strings.Replace(readThree9, "(3)", "(2)", 1)}, false, "", false},
		"after a loss that was found at the start → it waits":              {[]int{4}, []string{readThree9}, true, "3 of 4", false},
		"a later server of this pod → it waits":                            {[]int{NotKnown, 4}, []string{readThree9}, false, "3 of 4", false},
	} {
		t.Run(name, func(t *testing.T) {
			var told []types.ShareRecovery
			before := types.ShareRecovery{}
			if c.before {
				before = NewIncident("Reason", "why")
			}
			r := NewRecording(before, func(f types.ShareRecovery) { told = append(told, f) }, quiet())
			r.started = start
			for _, n := range c.records {
				r.ServerStarts(n)
			}
			for _, line := range c.lines {
				r.HandleLine([]byte(line))
			}
			r.Report(start)
			assert.Equal(t, c.soon, len(told) == 1)
			r.Report(start.Add(firstQuestionLimit))
			r.Report(start.Add(firstQuestionLimit + time.Second))
			if c.want == "" {
				assert.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			assert.Equal(t, "RecoveryDataMissing the NFS server has read the records of only "+c.want+" clients", told[0].Reason+" "+told[0].Message)
		})
	}
}
