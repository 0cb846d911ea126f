package ganesha

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecordsAreAdopted(t *testing.T) {
	source4, source6 := netip.MustParseAddr("169.254.99.1"), netip.MustParseAddr("fd00:6c6f:6e67:686f:726e::1")
	for _, c := range []struct{ name, record, want string }{
		{"of both families' socket", "::ffff:10.1.3.1-(20:Linux NFSv4.2 node-1)", "::ffff:169.254.99.1-(20:Linux NFSv4.2 node-1)"},
		{"of IPv4", "10.1.3.1-(3:a-b)", "169.254.99.1-(3:a-b)"},
		{"of IPv6", "fd00::7-(3:a-b)", "fd00:6c6f:6e67:686f:726e::1-(3:a-b)"},
		{"a name with another record in it", "10.1.3.1-(12:x-(3:10.1.1.1)", "169.254.99.1-(12:x-(3:10.1.1.1)"},
		{"adopted before", "::ffff:169.254.99.1-(3:abc)", ""},
		{"this machine's own", "::ffff:127.0.0.1-(3:abc)", ""},
		{"of no address", "somebody-(3:abc)", ""},
		{"no record", "node0.ABCDEF", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "recovery")
			records := filepath.Join(dir, RecordsName, "node0.ABCDEF")
			require.NoError(t, os.MkdirAll(filepath.Join(records, c.record), 0o700))
			require.NoError(t, os.Symlink("node0.ABCDEF", filepath.Join(dir, RecordsName, "node0")))
			require.NoError(t, AdoptRecords(dir, source4, source6))
			want := c.want
			if want == "" {
				want = c.record
			}
			entries, err := os.ReadDir(records)
			require.NoError(t, err)
			require.Len(t, entries, 1)
			assert.Equal(t, want, entries[0].Name())
			require.NoError(t, AdoptRecords(dir, source4, source6), "again")
		})
	}
	dir := t.TempDir()
	require.NoError(t, AdoptRecords(dir, source4, source6), "there are none")
	records := filepath.Join(dir, RecordsName, "node0.ABCDEF")
	for _, name := range []string{"10.1.3.1-(3:abc)", "169.254.99.1-(3:abc)"} {
		require.NoError(t, os.MkdirAll(filepath.Join(records, name, name), 0o700))
	}
	require.Error(t, AdoptRecords(dir, source4, source6))
	assert.DirExists(t, filepath.Join(records, "169.254.99.1-(3:abc)", "169.254.99.1-(3:abc)"), "a record that is there is not replaced")
}
