package ganesha

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordsOf creates a recovery directory with records.
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

func TestRecordsOfLostClientsAreDropped(t *testing.T) {
	recovery := recordsOf(t, recordOfA, recordOfB)
	dropped, err := DropLost(recovery, isA)
	require.NoError(t, err)
	assert.Equal(t, []string{"Linux NFSv4.2 a"}, dropped)
	assert.Equal(t, []string{recordOfB}, recordsIn(t, recovery))
}

// TestAListIsTakenOnlyOnce: not by a process that restarts in the same pod, by another pod of the same engine, or by a
// pod that comes late.
func TestAListIsTakenOnlyOnce(t *testing.T) {
	recovery := t.TempDir()
	take := func(after int64) bool {
		isFirst, err := TakeList(recovery, after)
		require.NoError(t, err)
		return isFirst
	}
	assert.True(t, take(7))
	assert.False(t, take(7), "the process started again")
	assert.False(t, take(6), "a pod that comes late")
	require.NoError(t, Serves(recovery, 9))
	assert.False(t, take(8), "another pod had the engine of generation 9, without a list")
	assert.True(t, take(9), "the next engine's first pod")
	require.NoError(t, Serves(recovery, 9))
	assert.False(t, take(9), "a generation that is not new changes nothing")
	require.NoError(t, Serves(recovery, -1))
	assert.True(t, take(10))
}

// TestRecordsThatStay: only a record that certainly belongs to a lost client is removed.
func TestRecordsThatStay(t *testing.T) {
	all := func(string) bool { return true }
	for name, tc := range map[string]struct {
		record string
		isLost func(string) bool
	}{
		"another client":                          {recordOfB, isA},
		"a name that says another length":         {"::1-(3:Linux NFSv4.2 a)", all},
		"a name that ends early, and says more":   {"::1-(16:Linux NFSv4.2 a)", all},
		"a name in pieces":                        {"::1-(300:Linux NFSv4.2 a", all},
		"not a record":                            {"something", all},
		"a name with the other's name within":     {"::1-(31:x-(15:Linux NFSv4.2 a)/Linux b)"[:30], isA},
		"the record of a client whose name is in": {"::1-(19:x-(15:Linux NFSv4.2)", isA},
	} {
		t.Run(name, func(t *testing.T) {
			recovery := recordsOf(t, tc.record)
			dropped, err := DropLost(recovery, tc.isLost)
			require.NoError(t, err)
			assert.Empty(t, dropped)
			assert.Len(t, recordsIn(t, recovery), 1)
		})
	}
}

func TestAListThatCannotBeRecordedIsNotTaken(t *testing.T) {
	recovery := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(recovery, LostName), 0o700)) // it accepts no number
	isFirst, err := TakeList(recovery, 7)
	require.Error(t, err)
	assert.False(t, isFirst)
	require.Error(t, Serves(recovery, 7))
}

func TestClientsComeFromTheRecordsInForce(t *testing.T) {
	recovery := recordsOf(t, recordOfA, "something", recordOfB)
	names, err := Clients(recovery)
	require.NoError(t, err)
	assert.Equal(t, []string{"Linux NFSv4.2 a", "Linux NFSv4.2 b"}, names)
	none, err := Clients(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, none)
}
