package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/longhorn-lep/longhorn-manager/devcluster/agent"
	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// runAgent is the agent of a guest.
func runAgent() error {
	l, err := agent.Listen(context.Background(), netns.ManagementDevice, config.AgentPort)
	if err != nil {
		return err
	}
	return agent.Serve(l)
}

// Exit codes of a command that did not run, or that has an unknown result.
const (
	exitNotRun = 127
	exitLost   = 255
)

// runOnGuest runs a command through the agent of a guest as if it were a child of this process. The arguments are
// NAMESPACE ADDRESS PID COMMAND..., where PID is the process of the guest's kernel.
func runOnGuest(args []string) int {
	code, err := onGuest(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		var told agent.Error
		if errors.As(err, &told) {
			return exitNotRun
		}
		return exitLost
	}
	return code
}

func onGuest(args []string) (int, error) {
	if len(args) < 4 {
		return 0, errors.New("takes a namespace, an address, a process and a command")
	}
	pid, err := strconv.Atoi(args[2])
	if err != nil {
		return 0, fmt.Errorf("process %q: %w", args[2], err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if err := cancelWithProcess(cancel, pid); err != nil {
		return 0, err
	}
	conn, err := agent.Dial(ctx, args[0], args[1])
	if err != nil {
		return 0, err
	}
	streams := agent.Streams{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: passedOn(cancel)}
	request := agent.Request{Argv: args[3:], Env: os.Environ()}
	if term.IsTerminal(0) && term.IsTerminal(1) {
		before, err := term.MakeRaw(0)
		if err != nil {
			return 0, fmt.Errorf("set terminal: %w", err)
		}
		defer func() { _ = term.Restore(0, before) }()
		size := terminalSize()
		request.Terminal, streams.Resized = &size, resized()
	}
	return agent.Exec(ctx, conn, request, streams)
}

// cancelWithProcess calls cancel when the process exits. A guest without power closes no connection.
func cancelWithProcess(cancel context.CancelCauseFunc, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("find the node's process: %w", err)
	}
	go func() {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n > 0 {
				cancel(errors.New("the node went off"))
			}
			return
		}
	}()
	return nil
}

// endPatience is how long a command may run after it got a signal to stop. A command that waits for a disk that hangs,
// or on a guest that is suspended, cannot exit.
const endPatience = 5 * time.Second

// passedOn returns the signals for the command. If the command does not exit after a signal that stops programs, this
// process exits without it.
func passedOn(cancel context.CancelCauseFunc) <-chan os.Signal {
	in, out := make(chan os.Signal, 8), make(chan os.Signal, 8)
	signal.Notify(in, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	go func() {
		for s := range in {
			out <- s
			if s != unix.SIGUSR1 && s != unix.SIGUSR2 {
				time.AfterFunc(endPatience, func() { cancel(fmt.Errorf("the command does not end after signal %q", s)) })
			}
		}
	}()
	return out
}

func terminalSize() agent.Size {
	columns, rows, err := term.GetSize(1)
	if err != nil {
		return agent.Size{Rows: 24, Columns: 80}
	}
	return agent.Size{Rows: uint16(rows), Columns: uint16(columns)}
}

func resized() <-chan agent.Size {
	in, out := make(chan os.Signal, 1), make(chan agent.Size)
	signal.Notify(in, unix.SIGWINCH)
	go func() {
		for range in {
			out <- terminalSize()
		}
	}()
	return out
}
