package app

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
)

func TestTheWidthIsTheUsersOrTheDefault(t *testing.T) {
	for columns, want := range map[string]int{"": inspect.DefaultWidth, "80": 80, "200": 200, "1": minWidth, "0": inspect.DefaultWidth, "wide": inspect.DefaultWidth} {
		t.Setenv("COLUMNS", columns)
		assert.Equal(t, want, widthOf(&strings.Builder{}), "COLUMNS=%s", columns)
	}
	pipe, _, err := os.Pipe()
	require.NoError(t, err)
	defer pipe.Close()
	assert.Zero(t, terminalWidth(pipe))
}

// helpOf returns the help of a command of the plugin.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	cli.HelpPrinter = printHelp
	t.Cleanup(func() { cli.HelpPrinter = cli.DefaultPrintHelp })
	out, err := runPlugin(t, append(args, "--help")...)
	require.NoError(t, err)
	return out
}

func TestHelpFits(t *testing.T) {
	commands := [][]string{nil}
	for _, c := range plugin().Commands {
		commands = append(commands, []string{c.Name})
		for _, sub := range c.Commands {
			commands = append(commands, []string{c.Name, sub.Name})
		}
	}
	for _, args := range commands {
		help := helpOf(t, args...)
		assert.Contains(t, help, pluginCall, "%q", args)
		assert.NotContains(t, help, pluginName, "%q", args)
		for _, line := range strings.Split(help, "\n") {
			assert.LessOrEqual(t, len([]rune(line)), inspect.DefaultWidth, "%q: %s", args, line)
		}
	}
}

func TestAnErrorIsOneLineForScripts(t *testing.T) {
	var out strings.Builder
	long := strings.Repeat("word ", 50) + "end"
	printError(&out, "longhorn-manager", errors.New(long))
	assert.Equal(t, "longhorn-manager: "+long+"\n", out.String())
}
