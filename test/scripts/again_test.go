// Package scripts tests the scripts that decide something, with fake commands and files.
package scripts

import (
	"cmp"
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
	failed = "=== RUN   Test%[1]s\n=== RUN   Test%[1]s/part\n    --- FAIL: Test%[1]s/part (0.50s)\n--- FAIL: Test%[1]s (1.00s)\nFAIL\nFAIL\tpackage\t1.000s\nFAIL\n"
)

func fails(test string) string { return fmt.Sprintf(failed, test) }

func TestFailedTestsRunOnceMore(t *testing.T) {
	const running = "=== RUN   TestC\n    c_test.go:1: working\n"
	type row struct {
		logs  []string
		again string // what each test prints when it runs again; %s is its name
		still string // the test that fails again
		ran   []string
		fail  bool
		says  []string
	}
	cut := func(end string) row {
		return row{logs: []string{fails("B") + running + end}, fail: true, says: []string{"did not end by its tests"}}
	}
	for name, tc := range map[string]row{
		"nothing failed, but the caller says so":   {logs: []string{passed, passed}, fail: true, says: []string{"no test failed"}},
		"one failed, and passes now":               {logs: []string{passed, fails("B")}, ran: []string{"^TestB$"}, says: []string{"FLAKY TestB"}},
		"one failed, and fails again":              {logs: []string{fails("B"), passed}, still: "B", ran: []string{"^TestB$"}, fail: true, says: []string{"TestB failed with others in parallel, and alone"}},
		"two failed, one fails again":              {logs: []string{fails("B"), fails("C")}, still: "B", ran: []string{"^TestB$", "^TestC$"}, fail: true, says: []string{"FLAKY TestC", "TestB failed with"}},
		"one failed, and is skipped now":           {logs: []string{fails("B")}, again: "--- SKIP: %s (0.00s)", ran: []string{"^TestB$"}, fail: true, says: []string{"and alone"}},
		"one failed, and no test has its name now": {logs: []string{fails("B")}, again: "no tests to run", ran: []string{"^TestB$"}, fail: true, says: []string{"and alone"}},
		"one lost data":                            {logs: []string{strings.Replace(fails("B"), "FAIL\n", "Messages: not by chance: records are lost\nFAIL\n", 1)}, fail: true, says: []string{"no matter of time", "records are lost"}},
		"more failed than by bad luck":             {logs: []string{fails("B"), fails("C") + fails("D") + fails("E")}, fail: true, says: []string{"4 tests failed"}},
		"a run wrote nothing":                      {logs: []string{passed, ""}, fail: true, says: []string{"did not end by its tests"}},
		"a run ended without a test":               {logs: []string{passed, "no cluster\nFAIL\tpackage\t1.0s\n"}, fail: true, says: []string{"did not end by its tests"}},
		"a cluster was not removed":                {logs: []string{strings.Replace(fails("B"), "FAIL\tp", "target is busy\nexit status 3\nFAIL\tp", 1)}, fail: true, says: []string{"did not end by its tests"}},
		"a nested run says ok":                     {logs: []string{strings.Replace(fails("B"), "FAIL\n", "ok  \tother\t1.0s\nFAIL\n", 1)}, still: "B", ran: []string{"^TestB$"}, fail: true, says: []string{"and alone"}},
		"a run was killed":                         cut("signal: killed\nFAIL\tpackage\t60.0s\nFAIL\n"),
		"a run crashed":                            cut("fatal error: concurrent map writes\nexit status 2\nFAIL\tpackage\t60.0s\nFAIL\n"),
		"a run took too long":                      cut("*** Test killed with quit: ran too long (1m0s).\nFAIL\tpackage\t60.0s\nFAIL\n"),
		"a run ended with a panic":                 cut("half a line panic: test timed out after 1m0s\nFAIL\tpackage\t60.0s\nFAIL\n"),
		"a result stands behind half a line":       cut("half a line --- FAIL: TestC (1.00s)\nFAIL\nFAIL\tpackage\t60.0s\nFAIL\n"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var args []string
			for i, log := range tc.logs {
				args = append(args, filepath.Join(dir, fmt.Sprintf("%d.log", i)))
				require.NoError(t, os.WriteFile(args[i], []byte(log), 0o600))
			}
			ran := filepath.Join(dir, "ran")
			again := cmp.Or(tc.again, "--- PASS: %s (1.00s)")
			command := `echo "$3" >>"` + ran + `"; [ "$2 $3" = "-run ^Test` + tc.still + `$" ] && exit 1; [ "$1" = "an argument" ] && name=${3#^} && printf -- '` + again + `\n' "${name%$}"`
			args = append(args, "--", "bash", "-c", command, "command", "an argument")
			out, err := exec.CommandContext(t.Context(), "../../scripts/again.sh", args...).CombinedOutput()
			assert.Equal(t, tc.fail, err != nil, "%s", out)
			for _, text := range tc.says {
				assert.Contains(t, string(out), text)
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
