package ganesha

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRecordsOfAnotherVolumesClientsAreRemoved(t *testing.T) {
	const ours, anothers = "0f4a1c0e-8f2e-4c59-9b1d-3c1f6d2f7a10", "5a0b66f2-1d35-4f0e-8a55-9a1b2c3d4e5f"
	const record = "v4recov/node0.ABCDEF/169.254.99.1-(6:client)/"
	kept := []string{"cover/", "cover/file", "epoch", "lost", "v4recov/", "v4recov/node0@", "v4recov/node0.ABCDEF/", record}
	emptied := []string{"cover/", "cover/file", "epoch", "v4recov/"}
	link := func(target string) func(*testing.T, string) {
		return func(t *testing.T, path string) { require.NoError(t, os.Symlink(target, path)) }
	}
	for name, tc := range map[string]struct {
		uid     string
		owner   func(t *testing.T, path string) // the present content; nil: none
		removed bool
		want    string // "": no link
		tree    []string
	}{
		"an earlier release wrote them → kept, and the UID is written": {ours, nil, false, ours, kept},
		"this volume's → kept": {ours, link(ours), false, ours, kept},
		"another volume's: a clone or a restored backup → removed":                  {ours, link(anothers), true, ours, emptied},
		"a leader that gives no UID → kept, without a UID":                          {"", link(ours), false, "", kept},
		"a leader that gives no UID, another volume's → kept, without a UID":        {"", link(anothers), false, "", kept},
		"a leader that gives no UID, an earlier release → kept":                     {"", nil, false, "", kept},
		"a link that someone else put there → kept, and the UID is written":         {ours, link("../../etc"), false, ours, kept},
		"a link of someone else's, and a leader that gives no UID → it is removed":  {"", link("../../etc"), false, "", kept},
		"a file in place of the link: not known → kept, and the UID is written":     {ours, func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte(anothers), 0o600)) }, false, ours, kept},
		"a pipe in place of the link → this process does not wait for it, and kept": {ours, func(t *testing.T, path string) { require.NoError(t, unix.Mkfifo(path, 0o600)) }, false, ours, kept},
		"a directory in place of the link → kept":                                   {ours, func(t *testing.T, path string) { require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o700)) }, false, ours, kept},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, d := range []string{"cover", record} {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
			}
			for _, f := range []string{"cover/file", "epoch", "lost"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, f), []byte("0000000007\n"), 0o600))
			}
			require.NoError(t, os.Symlink("node0.ABCDEF", filepath.Join(dir, "v4recov/node0")))
			path := filepath.Join(dir, OwnerName)
			if tc.owner != nil {
				tc.owner(t, path)
			}
			require.NoError(t, DropForeign(dir))
			removed, err := Claim(dir, tc.uid)
			require.NoError(t, err)
			assert.Equal(t, tc.removed, removed)
			want := tc.tree
			if tc.want != "" {
				want = append([]string{OwnerName + "@"}, want...)
				owner, err := os.Readlink(path)
				require.NoError(t, err)
				assert.Equal(t, tc.want, owner)
			}
			assert.ElementsMatch(t, want, tree(t, dir))
			assert.Empty(t, LostRecords(dir, false), "what was removed is no loss of this volume's clients, now or after a crash")
			require.NoError(t, DropForeign(dir))
			removed, err = Claim(dir, tc.uid)
			require.NoError(t, err)
			assert.False(t, removed, "once")
			assert.ElementsMatch(t, want, tree(t, dir))
		})
	}
}

// While a leader or an image of an earlier release serves a clone, its records come to describe the clone's own
// clients.
func TestRecordsThatAServerAddedWithoutAUIDStay(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("another", filepath.Join(dir, OwnerName)))
	removed, err := Claim(dir, "")
	require.NoError(t, err)
	require.False(t, removed)
	const own = "v4recov/node0.ABCDEF/169.254.99.1-(3:own)"
	require.NoError(t, os.MkdirAll(filepath.Join(dir, own), 0o700))
	removed, err = Claim(dir, "ours")
	require.NoError(t, err)
	assert.False(t, removed)
	assert.DirExists(t, filepath.Join(dir, own))
}

func TestEpochsGrowAfterRecordsOfAnotherVolumeAreRemoved(t *testing.T) {
	dir := t.TempDir()
	ahead := time.Unix(2_000_000_000, 0) // the clock of the other volume's node
	before, err := (&Epochs{Recovery: dir}).Next(ahead)
	require.NoError(t, err)
	require.NoError(t, os.Symlink("another", filepath.Join(dir, OwnerName)))
	removed, err := Claim(dir, "ours")
	require.NoError(t, err)
	require.True(t, removed)
	after, err := (&Epochs{Recovery: dir}).Next(ahead.Add(-time.Hour))
	require.NoError(t, err)
	assert.Greater(t, after, before)
}

// The records are removed before the UID of the other volume, so that the removal is repeated after a crash in between.
func TestRecordsThatCannotBeRemovedKeepTheOtherUID(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, RecordsName), nil, 0o600)) // not a directory: it cannot be listed
	path := filepath.Join(dir, OwnerName)
	require.NoError(t, os.Symlink("another", path))
	_, err := Claim(dir, "ours")
	require.ErrorIs(t, err, unix.ENOTDIR)
	owner, err := os.Readlink(path)
	require.NoError(t, err)
	assert.Equal(t, "another", owner)
}

func TestTheOwnerOfRecordsCannotBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Claim(file, "ours")
	require.ErrorIs(t, err, unix.ENOTDIR, "an error, and not a volume without a UID")
}

func TestIsVolumeUID(t *testing.T) {
	for text, want := range map[string]bool{
		"0f4a1c0e-8f2e-4c59-9b1d-3c1f6d2f7a10": true, "volume": true, "": false, ".": false, "..": false, "a/b": false, "../a": false, "-a": false, "a b": false, "a\n": false,
		"0123456789012345678901234567890123456789012345678901234567890123": false,
	} {
		assert.Equal(t, want, IsVolumeUID(text), "%q", text)
	}
}
