package ganesha

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLostRecords(t *testing.T) {
	const current = "node0.ABCDEF"
	records := func(t *testing.T, dir string, names ...string) {
		t.Helper()
		require.NoError(t, os.Mkdir(filepath.Join(dir, RecordsName), 0o700))
		for _, name := range names {
			require.NoError(t, os.Mkdir(filepath.Join(dir, RecordsName, name), 0o700))
		}
	}
	link := func(t *testing.T, dir, target string) {
		t.Helper()
		require.NoError(t, os.Symlink(target, filepath.Join(dir, RecordsName, linkName)))
	}
	for _, c := range []struct {
		name string
		made bool
		fill func(t *testing.T, dir string)
		want string
	}{
		{name: "the recovery directory was missing → lost", made: true, fill: func(*testing.T, string) {}, want: "directory .longhorn-share was not on the volume"},
		{name: "no directory of records → lost", fill: func(*testing.T, string) {}, want: "directory .longhorn-share/v4recov was not on the volume"},
		{name: "a file in its place → lost", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, RecordsName), nil, 0o600))
		}, want: "directory .longhorn-share/v4recov was not on the volume"},
		{name: "a link in its place, be it to records → lost", fill: func(t *testing.T, dir string) {
			elsewhere := t.TempDir()
			records(t, elsewhere, current)
			link(t, elsewhere, current)
			require.NoError(t, os.Symlink(filepath.Join(elsewhere, RecordsName), filepath.Join(dir, RecordsName)))
		}, want: "directory .longhorn-share/v4recov was not on the volume"},
		{name: "no grace period has ended → kept", fill: func(t *testing.T, dir string) { records(t, dir, current) }},
		{name: "the link leads to records → kept", fill: func(t *testing.T, dir string) {
			records(t, dir, current, "node0.UVWXYZ")
			link(t, dir, current)
		}},
		{name: "the link leads to a directory without records → kept, for the clients have ended", fill: func(t *testing.T, dir string) {
			records(t, dir, current)
			link(t, dir, current)
		}},
		{name: "the link leads nowhere → lost", fill: func(t *testing.T, dir string) {
			records(t, dir, "node0.UVWXYZ")
			link(t, dir, current)
		}, want: "directory .longhorn-share/v4recov/node0.ABCDEF was not on the volume"},
		{name: "the link leads elsewhere → lost", fill: func(t *testing.T, dir string) {
			records(t, dir, current)
			link(t, dir, "/etc")
		}, want: ".longhorn-share/v4recov/node0 was not the link that the NFS server creates"},
		{name: "a directory in place of the link → lost", fill: func(t *testing.T, dir string) {
			records(t, dir, current, linkName)
		}, want: ".longhorn-share/v4recov/node0 was not the link that the NFS server creates"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.fill(t, dir)
			assert.Equal(t, c.want, LostRecords(dir, c.made))
		})
	}
}

func TestIncidentNamesAreUnique(t *testing.T) {
	first, second := NewIncident("Reason", "why"), NewIncident("Reason", "why")
	assert.NotEmpty(t, first.Incident)
	assert.NotEqual(t, first.Incident, second.Incident)
	assert.False(t, first.FoundAt.IsZero())
}
