package page

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestABrowserThatDoesNotOpenIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   string // in the error; "": none
	}{
		"the command finds a browser":   {script: "test \"$1\" = https://127.0.0.1:9500"},
		"the command finds no browser":  {script: "exit 3", want: "xdg-open: exit status 3"},
		"the command itself is missing": {want: "executable file not found"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			if tc.script != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\n"+tc.script+"\n"), 0o700)) //nolint:gosec // it is run
			}
			err := Browse(t.Context(), "https://127.0.0.1:9500")
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tc.want)
		})
	}
}
