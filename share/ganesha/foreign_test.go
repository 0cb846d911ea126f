package ganesha

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tree lists the content of a directory; names of directories end in "/", names of links in "@".
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		switch {
		case name == ".":
			return nil
		case e.IsDir():
			name += "/"
		case e.Type() == os.ModeSymlink:
			name += "@"
		}
		found = append(found, name)
		return nil
	}))
	return found
}

// A user of the volume, before it was shared or after, wrote into the recovery directory.
func TestForeignEntriesAreRemovedFromTheRecoveryData(t *testing.T) {
	const current, client = "v4recov/node0.ABCDEF", "v4recov/node0.ABCDEF/169.254.99.1-(20:Linux NFSv4.2 node-1)"
	elsewhere := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(elsewhere, "empty"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "file"), []byte("data"), 0o600))
	kept := []string{"cover/", "v4recov/", "v4recov/node0@", current + "/", client + "/", client + "/\x01handle"}
	for _, c := range []struct {
		name string
		fill func(t *testing.T, dir string)
		want []string
	}{
		{name: "nothing foreign → all stays", fill: func(*testing.T, string) {}, want: kept},
		{name: "links that lead elsewhere, in the place of anything → dropped", fill: func(t *testing.T, dir string) {
			for _, name := range []string{"written", "other", "v4recov/other", current + "/other", client + "/other"} {
				require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, name)))
			}
			require.NoError(t, os.Symlink("node0.ABCDEF", filepath.Join(dir, current, "known")), "only Ganesha's own directory has such links")
		}, want: kept},
		{name: "pipes, which this process and Ganesha would wait for → dropped", fill: func(t *testing.T, dir string) {
			for _, name := range []string{"written", "v4recov/pipe", client + "/pipe"} {
				require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
			}
		}, want: kept},
		{name: "a directory in place of the file that shows that the volume takes writes → dropped", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "written/full"), 0o700))
		}, want: kept},
		{name: "a directory in place of the link → dropped", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "v4recov/node0")))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "v4recov/node0/full"), 0o700))
		}, want: []string{"cover/", "v4recov/", current + "/", client + "/", client + "/\x01handle"}},
		{name: "a file in place of the records → dropped", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "v4recov")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "v4recov"), nil, 0o600))
		}, want: []string{"cover/"}},
		{name: "a link in place of the records → dropped", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "v4recov")))
			require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "v4recov")))
		}, want: []string{"cover/"}},
		{name: "directories in directories without end → dropped", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "v4recov"+strings.Repeat("/d", 200)), 0o700))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "v4recov/node0.ABCDEF")))
		}, want: append(nested("v4recov", maxNesting-1), "v4recov/node0@")},
		{name: "what clients put into the cover → theirs", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "cover/link")))
		}, want: append([]string{"cover/", "cover/link@"}, kept[1:]...)},
		{name: "a file that another release keeps there → stays", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "later"), nil, 0o600))
		}, want: append([]string{"later"}, kept...)},
		{name: "the ballast → stays", fill: func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, reserveName, "00"), 0o700))
		}, want: append([]string{"ballast/", "ballast/00/"}, kept...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "cover"), 0o700))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, client), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, client, "\x01handle"), nil, 0o600))
			require.NoError(t, os.Symlink("node0.ABCDEF", filepath.Join(dir, "v4recov/node0")))
			c.fill(t, dir)
			require.NoError(t, DropForeign(dir))
			assert.ElementsMatch(t, c.want, tree(t, dir))
			assert.Equal(t, []string{"empty/", "file"}, tree(t, elsewhere), "what a link led to stays")
		})
	}
}

// Ganesha uses memory for each record, and this process must not.
func TestRecordsWithoutNumberAreSetAsideForTheClients(t *testing.T) {
	dir := t.TempDir()
	records, beside := filepath.Join(dir, "v4recov/node0.ABCDEF"), filepath.Join(dir, "beside")
	for _, d := range []string{records, beside, filepath.Join(dir, "cover")} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	links := func(to string, from, until int) {
		entry := filepath.Join(t.TempDir(), "entry") // a separate file: a file has 65,000 links at most
		require.NoError(t, os.WriteFile(entry, nil, 0o600))
		for i := from; i < until; i++ {
			require.NoError(t, os.Link(entry, filepath.Join(to, strconv.Itoa(i))))
		}
	}
	links(beside, 0, maxRecords+1)
	links(records, 0, maxRecords-1) // with their own directory the greatest allowed number
	require.NoError(t, DropForeign(dir), "nobody reads what is beside the records")
	links(records, maxRecords-1, maxRecords)
	require.ErrorIs(t, DropForeign(dir), ErrTooMany)
	require.NoError(t, SetAside(dir))
	require.NoDirExists(t, filepath.Join(dir, "v4recov"))
	aside, err := filepath.Glob(filepath.Join(dir, "cover/v4recov-*/node0.ABCDEF/0"))
	require.NoError(t, err)
	require.Len(t, aside, 1)
	require.NoError(t, DropForeign(dir), "the next server begins anew")
}

// nested is a directory with that many directories inside each other, and the cover next to it.
func nested(dir string, deep int) []string {
	list := []string{"cover/", dir + "/"}
	for range deep {
		dir += "/d"
		list = append(list, dir+"/")
	}
	return list
}
