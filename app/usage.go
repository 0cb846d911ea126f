package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/explain"
)

// strict makes a command, and all its subcommands, refuse unknown commands, flags and arguments. The library would
// print help, or ignore them. The error is returned and printed once, and the exit code is the same as for any error.
func strict(c *cli.Command) *cli.Command {
	c.OnUsageError = func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err }
	for _, sub := range c.Commands {
		strict(sub)
	}
	switch {
	case len(c.Commands) > 0 && c.Action == nil:
		c.Action = helpOrUnknown
	case c.Action != nil && c.ArgsUsage == "":
		act := c.Action
		c.Action = func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() > 0 {
				return fmt.Errorf("%s takes no arguments; it got %q", c.Name, strings.Join(c.Args().Slice(), " "))
			}
			return act(ctx, c)
		}
	}
	return c
}

// helpOrUnknown is the action of a command that has subcommands and was called without one of them.
func helpOrUnknown(_ context.Context, c *cli.Command) error {
	if c.Args().Len() == 0 {
		if c == c.Root() {
			return cli.ShowRootCommandHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	var names, known []string
	for _, sub := range c.Commands {
		if sub.Hidden || sub.Name == "help" {
			continue
		}
		known = append(known, sub.Name)
		names = append(names, sub.Names()...)
	}
	typed := c.Args().First()
	if near := explain.Nearest(typed, names); near != "" {
		return fmt.Errorf("%s %q is not known; did you mean %q?", whatFollows(c), typed, near)
	}
	return fmt.Errorf("%s %q is not known; there are %s", whatFollows(c), typed, strings.Join(known, ", "))
}

// whatFollows returns the name for the next word after a command.
func whatFollows(c *cli.Command) string {
	if c == c.Root() {
		return "command"
	}
	return c.Name + ":"
}
