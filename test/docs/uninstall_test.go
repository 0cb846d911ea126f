package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheUninstallersEndIsWaitedFor: the documented commands continue when the Job has succeeded or failed, and show
// the end of its log.
func TestTheUninstallersEndIsWaitedFor(t *testing.T) {
	for name, states := range map[string][]string{
		"complete": {"", "SuccessCriteriaMet", "SuccessCriteriaMet Complete"},
		"refused":  {"", "FailureTarget", "FailureTarget Failed"},
	} {
		for _, page := range []string{uninstalling, gettingStarted} {
			t.Run(name+" by "+page, func(t *testing.T) {
				said := runWithStates(t, blockWith(t, page, "get job longhorn-uninstall"), states)
				assert.Equal(t, []string{
					"apply -f -", "get", "get", "get", states[2], "logs job/longhorn-uninstall --tail=20", "delete -f deploy/uninstall.yaml --timeout=3m",
				}, said)
			})
		}
	}
}

// blockWith returns the text of the page's commands that contain some words.
func blockWith(t *testing.T, page, words string) string {
	t.Helper()
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			if p.Path == page && b.Info == Commands && strings.Contains(b.Text, words) {
				return b.Text
			}
		}
	}
	t.Fatalf("%s has no command %q", page, words)
	return ""
}

// runWithStates runs commands with a kubectl that shows the conditions of a Job one after the other. It returns the
// output.
func runWithStates(t *testing.T, text string, states []string) []string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "states"), []byte(strings.Join(states, "\n")+"\n"), 0o600))
	for name, script := range map[string]string{
		"sleep": ":",
		"kubectl": `[ "$1" != -n ] || shift 2
case $1 in
get) echo get >&2; head -n1 states; sed -i 1d states;;
*) echo "$*";;
esac`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+script+"\n"), 0o700)) //nolint:gosec // it is run
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "deploy"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "deploy/uninstall.yaml"), nil, 0o600))
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -eu\n"+text)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
