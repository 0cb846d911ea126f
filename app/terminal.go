package app

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
)

// minWidth is the smallest width that the commands for people support. In a narrower terminal, their lines are broken
// by the terminal.
const minWidth = 40

// printerOf returns the printer of a command for people.
func printerOf(c *cli.Command) inspect.Printer {
	return inspect.Printer{Out: c.Root().Writer, Width: widthOf(c.Root().Writer)}
}

// widthOf returns the number of columns for text: $COLUMNS, or the width of the terminal, or else DefaultWidth.
func widthOf(out io.Writer) int {
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return max(columns, minWidth)
	}
	if columns := terminalWidth(out); columns > 0 {
		return max(columns, minWidth)
	}
	return inspect.DefaultWidth
}

// terminalWidth returns the number of columns of a terminal; 0: out is no terminal.
func terminalWidth(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// printHelp prints help in place of the library: with lines that fit, and with the plugin's name as users type it.
func printHelp(out io.Writer, template string, data any) {
	var text bytes.Buffer
	cli.HelpPrinterCustom(&text, template, data, nil)
	folded := inspect.Fold(text.String(), widthOf(out))
	if c, ok := data.(*cli.Command); ok && c.Description == "" { // the description of completion has names of files
		folded = strings.ReplaceAll(folded, pluginName, pluginCall)
	}
	fmt.Fprint(out, folded)
}

// printError prints the error with which a command ended. It breaks the text only for a terminal: scripts may search a
// line for it.
func printError(out io.Writer, name string, err error) {
	text := name + ": " + err.Error()
	if width := terminalWidth(out); width > 0 {
		text = inspect.Fold(text, max(width, minWidth))
	}
	fmt.Fprintln(out, text)
}
