package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/explain"
)

// strict makes a command, and all its subcommands, refuse unknown commands, flags and arguments. The library would
// print help, or ignore them. The error is returned and printed once, and the exit code is the same as for any error.
func strict(c *cli.Command) *cli.Command {
	c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error { return flagError(c, err) }
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
	return unknownWord(c, c.Args().First())
}

// unknownWord returns the error about a word that is not a command below c. It suggests the command that the user may
// have meant.
func unknownWord(c *cli.Command, typed string) error {
	var names, known []string
	for _, sub := range c.Commands {
		if sub.Hidden || sub.Name == "help" {
			continue
		}
		known = append(known, sub.Name)
		names = append(names, sub.Names()...)
	}
	return notKnown(whatFollows(c), typed, names, known)
}

// notKnown returns the error about a word: it suggests one of names, or lists the known words.
func notKnown(what, typed string, names, known []string) error {
	if nearest := explain.Nearest(typed, names); nearest != "" {
		return fmt.Errorf("%s %q is not known; did you mean %q?", what, typed, nearest)
	}
	return fmt.Errorf("%s %q is not known; there are %s", what, typed, strings.Join(known, ", "))
}

// showHelp shows the help of a command below c, in place of the library, which exits with another code if the command
// does not exist.
func showHelp(ctx context.Context, c *cli.Command, name string) error {
	if c.Command(name) == nil {
		return unknownWord(c, name)
	}
	return cli.DefaultShowCommandHelp(ctx, c, name)
}

// flagNotDefined is the start of the library's error about an unknown flag. The flag follows with one dash.
const flagNotDefined = "flag provided but not defined: -"

// flagError explains the library's error about an unknown flag, and returns any other error as it is.
func flagError(c *cli.Command, err error) error {
	typed, unknown := strings.CutPrefix(err.Error(), flagNotDefined)
	if !unknown {
		return err
	}
	if name := strings.TrimLeft(typed, "-"); c == c.Root() && isFlagBelow(c, name) {
		return fmt.Errorf("flag %s must follow the command, as in: %s status %s VALUE", withDashes(name), pluginCall, withDashes(name))
	}
	var names []string
	for _, flag := range append(c.VisibleFlags(), c.VisiblePersistentFlags()...) {
		names = append(names, withDashes(flag.Names()[0]))
	}
	err = fmt.Errorf("flag %s is not known%s", withDashes(typed), instead(withDashes(typed), names))
	if c == c.Root() {
		return err // the program's name is printed before every error
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

// isFlagBelow reports whether a command below c has a flag with a name.
func isFlagBelow(c *cli.Command, name string) bool {
	return slices.ContainsFunc(c.Commands, func(sub *cli.Command) bool {
		return slices.ContainsFunc(sub.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	})
}

// withDashes returns a flag as users type it.
func withDashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// whatFollows returns the name for the next word after a command.
func whatFollows(c *cli.Command) string {
	if c == c.Root() {
		return "command"
	}
	return c.Name + ":"
}
