package ganesha

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachServerHasAGreaterEpoch(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tc := range map[string]struct {
		stored string
		want   uint32
	}{
		"no server before → the time":               {"", 1_700_000_000},
		"an earlier one → the time":                 {"1600000000\n", 1_700_000_000},
		"within the same second → one more":         {"1700000000\n", 1_700_000_001},
		"a node with a clock that is ahead":         {"2000000000\n", 2_000_000_001},
		"torn → the time":                           {"17000\x00\x00", 1_700_000_000},
		"beyond what Ganesha takes → the time":      {"99999999999999\n", 1_700_000_000},
		"the greatest that Ganesha takes":           {"4294967295\n", 1_700_000_000},
		"more text than a number has → the time":    {"1700000000 and so on", 1_700_000_000},
		"someone has written a negative one → time": {"-5", 1_700_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, EpochName)
			if tc.stored != "" {
				require.NoError(t, os.WriteFile(path, []byte(tc.stored), 0o600))
			}
			e := Epochs{Recovery: dir}
			got, err := e.Next(now)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
			again, err := e.Next(now)
			require.NoError(t, err)
			assert.Greater(t, again, got, "the next server of this pod")
			other, err := (&Epochs{Recovery: dir}).Next(now)
			require.NoError(t, err)
			assert.Greater(t, other, again, "the first server of the next pod")
		})
	}
}

// TestAnEpochGrowsWithoutTheVolume: a server starts although the volume does not accept its epoch.
func TestAnEpochGrowsWithoutTheVolume(t *testing.T) {
	e := Epochs{Recovery: filepath.Join(t.TempDir(), "missing")}
	now := time.Unix(1_700_000_000, 0)
	first, err := e.Next(now)
	require.Error(t, err)
	second, err := e.Next(now)
	require.Error(t, err)
	assert.Equal(t, []uint32{1_700_000_000, 1_700_000_001}, []uint32{first, second})
}

// TestAnEpochFollowsNoLink: a pod that used the volume alone may have created a link there.
func TestAnEpochFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("data"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, EpochName)))
	_, err := (&Epochs{Recovery: dir}).Next(time.Unix(1_700_000_000, 0))
	require.Error(t, err)
	data, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "data", string(data))
}
