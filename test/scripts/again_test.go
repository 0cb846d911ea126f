// Package scripts tests the scripts that decide something, with fake commands and files.
package scripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	passed = "=== RUN   TestA\n--- PASS: TestA (1.00s)\nPASS\nok  \tpackage\t1.000s\n"
	failed = "=== RUN   Test%[1]s\n    --- FAIL: Test%[1]s/part (0.50s)\n--- FAIL: Test%[1]s (1.00s)\nFAIL\nFAIL\tpackage\t1.000s\nFAIL\n"
)

func fails(test string) string { return fmt.Sprintf(failed, test) }

func TestFailedTestsRunOnceMore(t *testing.T) {
	const panics = "=== RUN   TestB\n--- FAIL: TestA (0.00s)\npanic: test timed out after 1m0s\nFAIL\tpackage\t60.000s\nFAIL\n"
	for name, tc := range map[string]struct {
		logs  []string
		still string // the tests that fail again
		ran   []string
		fail  bool
		says  []string
	}{
		"nothing failed":               {logs: []string{passed, passed}},
		"one failed, and passes now":   {logs: []string{passed, fails("B")}, ran: []string{"^TestB$"}, says: []string{"FLAKY TestB"}},
		"one failed, and fails again":  {logs: []string{fails("B"), passed}, still: "B", ran: []string{"^TestB$"}, fail: true, says: []string{"TestB failed beside others, and alone"}},
		"two failed, one fails again":  {logs: []string{fails("B"), fails("C")}, still: "B", ran: []string{"^TestB$", "^TestC$"}, fail: true, says: []string{"FLAKY TestC", "TestB failed beside"}},
		"a run ended with a panic":     {logs: []string{panics}, fail: true, says: []string{"otherwise than by a test"}},
		"a run ended without a test":   {logs: []string{passed, "no cluster was cleared\nFAIL\tpackage\t1.0s\n"}, fail: true, says: []string{"otherwise than by a test"}},
		"a run wrote nothing":          {logs: []string{passed, ""}, fail: true, says: []string{"otherwise than by a test"}},
		"more failed than by bad luck": {logs: []string{fails("B"), fails("C") + fails("D") + fails("E")}, fail: true, says: []string{"4 tests failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var args []string
			for i, log := range tc.logs {
				args = append(args, filepath.Join(dir, fmt.Sprintf("%d.log", i)))
				require.NoError(t, os.WriteFile(args[i], []byte(log), 0o600))
			}
			ran := filepath.Join(dir, "ran")
			command := `echo "$3" >>"` + ran + `"; [ "$2 $3" = "-run ^Test` + tc.still + `$" ] && exit 1; [ "$1" = "an argument" ]`
			args = append(args, "--", "bash", "-c", command, "command", "an argument")
			out, err := exec.CommandContext(t.Context(), "../../scripts/again.sh", args...).CombinedOutput()
			assert.Equal(t, tc.fail, err != nil, "%s", out)
			for _, text := range tc.says {
				assert.Contains(t, string(out), text)
			}
			if tc.says == nil {
				assert.Empty(t, string(out))
			}
			lines, _ := os.ReadFile(ran)
			assert.Equal(t, tc.ran, nilIfEmpty(strings.Fields(string(lines))))
		})
	}
}

func nilIfEmpty(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}
