package replica

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// killDirEnv, if set, turns the test below into the writer that is killed.
const (
	killDirEnv        = "REPLICA_KILL_TEST_DIRECTORY"
	killGenerationEnv = "REPLICA_KILL_TEST_GENERATION"
	killSize          = 64 * mib
)

// writeUntilKilled writes its generation to one block in each region in turn. When a write is acknowledged, it prints
// the block's number.
func writeUntilKilled(t *testing.T, dir string) {
	generation, err := strconv.ParseInt(os.Getenv(killGenerationEnv), 10, 64)
	require.NoError(t, err)
	r, err := Open(fsys.Host{}, dir, testSpec("uid-1", killSize), Options{BootID: testBoot})
	require.NoError(t, err)
	s := admit(t, r, generation, fmt.Sprint("s", generation))
	for i := int64(0); ; i++ {
		require.NoError(t, s.WriteAt(context.Background(), stampBlock(byte(generation)), blockOffset(i), false))
		fmt.Printf("wrote %d\n", i)
	}
}

// blockOffset cycles through all 16 regions.
func blockOffset(i int64) int64 { return (i%16)*4*mib + (i/16%1024)*512 }

// A process that is killed loses no write that it acknowledged. Its lock, generation and marks are left in order, and
// the next process continues.
func TestAProcessThatIsKilledKeepsWhatItAcknowledged(t *testing.T) {
	if dir := os.Getenv(killDirEnv); dir != "" {
		writeUntilKilled(t, dir)
	}
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", killSize)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	for generation := int64(1); generation <= 4; generation++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAProcessThatIsKilledKeepsWhatItAcknowledged$")
		cmd.Env = append(os.Environ(), killDirEnv+"="+dir, fmt.Sprintf("%s=%d", killGenerationEnv, generation))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		last := readUntil(t, out, generation*37)
		_, err = Open(fsys.Host{}, dir, spec, Options{})
		assert.Equal(t, Locked, ReasonOf(err), "opened beside the writer: %v", err)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // the error says that it was killed

		r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
		assert.False(t, r.meta.Clean)
		assert.True(t, r.cacheKept)
		assert.Equal(t, generation, r.State().Generation, "after the kill")
		marked := r.intents.marked()
		for i := range last + 1 {
			got := make([]byte, 512)
			require.NoError(t, r.data.ReadAt(got, blockOffset(i)))
			require.True(t, bytes.Equal(got, stampBlock(byte(generation))), "generation %d: block %d was acknowledged and is lost", generation, i)
			require.Contains(t, marked, blockOffset(i)/(4*mib), "generation %d: block %d was written without a mark", generation, i)
		}
		require.NoError(t, r.Close(context.Background()))
	}
}

// readUntil reads acknowledgements until there are n, and returns the number of the last one.
func readUntil(t *testing.T, from interface{ Read([]byte) (int, error) }, n int64) int64 {
	t.Helper()
	last := int64(-1)
	lines := bufio.NewScanner(from)
	for last+1 < n && lines.Scan() {
		number, ok := strings.CutPrefix(lines.Text(), "wrote ")
		require.True(t, ok, "the writer said %q", lines.Text())
		i, err := strconv.ParseInt(number, 10, 64)
		require.NoError(t, err)
		last = i
	}
	require.GreaterOrEqual(t, last+1, n, "the writer ended after %d acknowledgements: %v", last+1, lines.Err())
	return last
}
