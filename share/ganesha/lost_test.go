package ganesha

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordsOf makes a recovery directory with records.
func recordsOf(t *testing.T, names ...string) (recovery string) {
	t.Helper()
	recovery = t.TempDir()
	dir := filepath.Join(recovery, RecordsName, "node0.abcdef")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.Symlink("node0.abcdef", filepath.Join(recovery, RecordsName, linkName)))
	for _, name := range names {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	return recovery
}

func recordsIn(t *testing.T, recovery string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(recovery, RecordsName, "node0.abcdef"))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

const (
	recordOfA = "::ffff:169.254.99.1-(15:Linux NFSv4.2 a)"
	recordOfB = "::ffff:169.254.99.1-(15:Linux NFSv4.2 b)"
)

func isA(client string) bool { return client == "Linux NFSv4.2 a" }

func TestRecordsOfLostClientsAreDroppedOnce(t *testing.T) {
	recovery := recordsOf(t, recordOfA, recordOfB)
	dropped, err := DropLost(recovery, 7, isA)
	require.NoError(t, err)
	assert.Equal(t, []string{"Linux NFSv4.2 a"}, dropped)
	assert.Equal(t, []string{recordOfB}, recordsIn(t, recovery))

	// The client comes back, and the server fails in the same pod, or in another pod with the same engine.
	require.NoError(t, os.Mkdir(filepath.Join(recovery, RecordsName, "node0.abcdef", recordOfA), 0o700))
	for _, generation := range []int64{7, 6} {
		dropped, err = DropLost(recovery, generation, isA)
		require.NoError(t, err)
		assert.Empty(t, dropped, "generation %d", generation)
		assert.Len(t, recordsIn(t, recovery), 2, "the client may hold locks: its record stays")
	}
	dropped, err = DropLost(recovery, 8, isA)
	require.NoError(t, err)
	assert.Len(t, dropped, 1, "a later successor has a list of its own")
}

// TestRecordsStayWhenTheyMust: nothing goes that is not surely the record of a lost client.
func TestRecordsStayWhenTheyMust(t *testing.T) {
	all := func(string) bool { return true }
	for name, tc := range map[string]struct {
		record     string
		generation int64
		isLost     func(string) bool
	}{
		"another client":                          {recordOfB, 1, isA},
		"the generation is not known":             {recordOfA, 0, isA},
		"a generation that cannot be":             {recordOfA, -1, isA},
		"a name that says another length":         {"::1-(3:Linux NFSv4.2 a)", 1, all},
		"a name that ends early, and says more":   {"::1-(16:Linux NFSv4.2 a)", 1, all},
		"a name in pieces":                        {"::1-(300:Linux NFSv4.2 a", 1, all},
		"not a record":                            {"something", 1, all},
		"a name with the other's name within":     {"::1-(31:x-(15:Linux NFSv4.2 a)/Linux b)"[:30], 1, isA},
		"the record of a client whose name is in": {"::1-(19:x-(15:Linux NFSv4.2)", 1, isA},
	} {
		t.Run(name, func(t *testing.T) {
			recovery := recordsOf(t, tc.record)
			dropped, err := DropLost(recovery, tc.generation, tc.isLost)
			require.NoError(t, err)
			assert.Empty(t, dropped)
			assert.Len(t, recordsIn(t, recovery), 1)
			assert.NoFileExists(t, filepath.Join(recovery, LostName))
		})
	}
}

// TestRecordsStayUntilTheMarkIsDurable: a crash before it leaves all records, and one after it leaves some too many.
func TestRecordsStayUntilTheMarkIsDurable(t *testing.T) {
	recovery := recordsOf(t, recordOfA)
	require.NoError(t, os.Mkdir(filepath.Join(recovery, LostName), 0o700)) // it takes no number
	_, err := DropLost(recovery, 7, isA)
	require.Error(t, err)
	assert.Len(t, recordsIn(t, recovery), 1)

	crashed := recordsOf(t, recordOfA)
	require.NoError(t, writeNumber(filepath.Join(crashed, LostName), 7))
	dropped, err := DropLost(crashed, 7, isA)
	require.NoError(t, err)
	assert.Empty(t, dropped)
}

func TestClientsAreThoseOfTheRecordsInForce(t *testing.T) {
	recovery := recordsOf(t, recordOfA, "something", recordOfB)
	names, err := Clients(recovery)
	require.NoError(t, err)
	assert.Equal(t, []string{"Linux NFSv4.2 a", "Linux NFSv4.2 b"}, names)
	none, err := Clients(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, none)
}
