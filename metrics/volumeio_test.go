package metrics

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestPace: the traffic of a volume's users is measured between two scrapes of one device.
func TestPace(t *testing.T) {
	at := func(reads, writes uint64) traffic {
		return traffic{read: counters{reads, reads * 4096, reads * 2}, written: counters{writes, writes * 512, writes}}
	}
	nbd1, nbd2 := Device{43, 16}, Device{43, 32}
	type step struct {
		after  time.Duration
		device Device
		t      traffic
		want   pace // over 0: not known
	}
	for name, steps := range map[string][]step{
		"two scrapes → what was done between them": {
			{0, nbd1, at(10, 10), pace{}}, {10 * time.Second, nbd1, at(30, 15), pace{at(20, 5), 10 * time.Second}},
		},
		"a scrape too soon → the last figure, and its time is not lost": {
			{0, nbd1, at(0, 0), pace{}},
			{time.Second, nbd1, at(5, 0), pace{}},
			{4 * time.Second, nbd1, at(10, 0), pace{at(10, 0), 5 * time.Second}},
			{time.Second, nbd1, at(90, 0), pace{at(10, 0), 5 * time.Second}},
		},
		"another device → begins anew": {
			{0, nbd1, at(10, 10), pace{}}, {10 * time.Second, nbd2, at(30, 15), pace{}}, {10 * time.Second, nbd2, at(31, 15), pace{at(1, 0), 10 * time.Second}},
		},
		"the counters went back → another device of that number": {
			{0, nbd1, at(10, 10), pace{}}, {10 * time.Second, nbd1, at(30, 9), pace{}}, {10 * time.Second, nbd1, at(30, 9), pace{at(0, 0), 10 * time.Second}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(begin)
			io := newVolumeIO(clock)
			for i, s := range steps {
				clock.Step(s.after)
				got, isKnown := io.next("vol", s.device, s.t)
				assert.Equal(t, s.want.over != 0, isKnown, "step %d", i)
				assert.Equal(t, s.want, got, "step %d", i)
			}
			io.keep([]string{"other"})
			assert.Empty(t, io.last, "what is not attached is forgotten")
		})
	}
}

func TestDiskstats(t *testing.T) {
	proc := t.TempDir()
	writeFile(t, filepath.Join(proc, "diskstats"), "  43  32 nbd2 7 1 16 9 8 2 24 11 0 20 20\nnonsense\n 1 2 short 1 2 3\n 7 0 loop0 x 0 0 0 0 0 0 0\n")
	got, err := diskstats(proc)
	require.NoError(t, err)
	assert.Equal(t, map[Device]traffic{{43, 32}: {read: counters{7, 16 * 512, 9}, written: counters{8, 24 * 512, 11}}}, got)
	_, err = diskstats(filepath.Join(proc, "none"))
	assert.Error(t, err)
}

func TestMountedReadOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	writeFile(t, file, `22 1 0:21 / /proc ro - proc proc ro
36 25 43:16 / /staging rw,relatime shared:1 - ext4 /dev/longhorn/a rw,errors=remount-ro
37 25 43:16 / /pod ro,relatime shared:1 - ext4 /dev/longhorn/a rw,errors=remount-ro
38 25 43:32 / /staging2 rw,relatime - xfs /dev/longhorn/b ro,noquota
torn 25
`)
	got, err := mountedReadOnly(file)
	require.NoError(t, err)
	assert.Equal(t, map[Device]bool{{43, 16}: false, {43, 32}: true}, got)
	_, err = mountedReadOnly(file + "x")
	assert.Error(t, err)
}
