// Devcluster creates a real Kubernetes cluster of several nodes on one Linux machine, without Docker and without a
// registry. See README.md.
//
// This file chooses the role of the program: a command that a person calls, or one of the components as which the
// program starts itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/agent"
	"github.com/longhorn-lep/longhorn-manager/devcluster/components"
	"github.com/longhorn-lep/longhorn-manager/devcluster/forward"
	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
	"github.com/longhorn-lep/longhorn-manager/devcluster/uml"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "component" {
		os.Exit(runComponent(os.Args[2], os.Args[3:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := rootCommand().Run(ctx, os.Args)
	stop()
	if err == nil {
		return
	}
	code := 1
	var exit cli.ExitCoder
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "devcluster:", err)
	os.Exit(code)
}

// runComponent runs a component as which the program started itself. Components are not commands for people, and their
// flags are not this program's.
func runComponent(name string, args []string) int {
	var err error
	switch name {
	case "machine":
		err = oneArgument(args, machine.Run)
	case "uml":
		err = oneArgument(args, uml.Run)
	case "guest":
		// The kernel adds arguments of its own.
		err = oneArgument(args[:min(1, len(args))], machine.RunGuest)
	case "agent":
		err = runAgent()
	case "on-guest":
		return runOnGuest(args)
	case "forward":
		err = runForward(args)
	default:
		return components.Run(name, args)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

func oneArgument(args []string, run func(string) error) error {
	if len(args) != 1 {
		return fmt.Errorf("takes one argument, got %d", len(args))
	}
	return run(args[0])
}

// runForward serves on the listener that it gets as descriptor 3. Its first argument is a target. If the target is
// reached through the agent of a guest, the namespace and address of the agent follow.
func runForward(args []string) error {
	var dial forward.Dialer
	switch len(args) {
	case 1:
		dial = forward.To(args[0])
	case 3:
		dial = func(ctx context.Context) (net.Conn, error) {
			return agent.DialInside(ctx, args[1], args[2], "tcp", args[0])
		}
	default:
		return fmt.Errorf("takes one argument or three, got %d", len(args))
	}
	file := os.NewFile(3, "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("take over listener: %w", err)
	}
	_ = file.Close()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	return forward.Serve(ctx, listener, dial)
}
