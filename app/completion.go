package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/explain"
)

// The names of the program: as a plugin of kubectl, as users type it, and as the program that kubectl calls for the
// plugin's completions.
const (
	pluginName     = "kubectl-longhorn"
	pluginCall     = "kubectl longhorn"
	completionName = "kubectl_complete-longhorn"
)

// completionFlag makes the library print the possible next words, one per line, as name or name:usage.
const completionFlag = "--generate-shell-completion"

// completionTimeout bounds how long a person who presses the tabulator key waits for the API server.
const completionTimeout = 3 * time.Second

// completeNames returns a completion that prints the names of objects. It prints none if the API server does not
// answer, because a completion cannot show errors.
func completeNames(names func(*explain.Snapshot) []string) cli.ShellCompleteFunc {
	return func(ctx context.Context, c *cli.Command) {
		if args := c.Args().Slice(); len(args) > 0 && strings.HasPrefix(args[len(args)-1], "-") {
			cli.DefaultCompleteWithFlags(ctx, c)
			return
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		s, err := snapshot(ctx, c)
		if err != nil {
			return
		}
		for _, name := range names(s) {
			fmt.Fprintln(c.Root().Writer, name)
		}
	}
}

// completeForKubectl answers kubectl, which calls the program with the words of the line. The last word may be empty or
// incomplete. kubectl reads lines "name<tab>usage", then a line with a directive: :4 means that they are not names of
// files.
func completeForKubectl(ctx context.Context, root *cli.Command, args []string, out io.Writer) error {
	if n := len(args); n > 0 && !strings.HasPrefix(args[n-1], "-") {
		args = args[:n-1]
	}
	var found bytes.Buffer
	root.Writer, root.ShellComplete = &found, listCommands
	if err := root.Run(ctx, append(append([]string{root.Name}, args...), completionFlag)); err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(found.String()), "\n") {
		name, usage, described := strings.Cut(line, ":")
		if described {
			name += "\t" + usage
		}
		if name != "" {
			fmt.Fprintln(out, name)
		}
	}
	_, err := fmt.Fprintln(out, ":4")
	return err
}

// listCommands prints the commands of c. The library's own function searches the process's arguments for them, but
// kubectl passes other arguments.
func listCommands(_ context.Context, c *cli.Command) {
	for _, sub := range c.Commands {
		if !sub.Hidden {
			fmt.Fprintf(c.Root().Writer, "%s:%s\n", sub.Name, sub.Usage)
		}
	}
}
