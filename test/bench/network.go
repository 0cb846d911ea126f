package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// network is a bridge in its own namespace and a namespace for each node. Nothing leads out of it: the machine's own
// network is not touched.
//
//	node 1: eth0 10.77.0.1 ──┐
//	node 2: eth0 10.77.0.2 ──┼── bridge in the namespace "router"
//	node 3: eth0 10.77.0.3 ──┘
type network struct {
	prefix string
	mtu    int // bytes
}

func (n network) router() string         { return n.prefix + "router" }
func (n network) node(number int) string { return fmt.Sprint(n.prefix, "node-", number) }

func nodeAddress(number int) string { return fmt.Sprint("10.77.0.", number) }

func (n network) make(ctx context.Context) error {
	router, mtu := n.router(), strconv.Itoa(n.mtu)
	commands := [][]string{
		{"netns", "add", router},
		{"-n", router, "link", "add", "bridge", "type", "bridge"},
		{"-n", router, "link", "set", "bridge", "up"},
	}
	for i := 1; i <= nodeCount; i++ {
		name, port := n.node(i), fmt.Sprint("port", i)
		commands = append(commands, [][]string{
			{"netns", "add", name},
			{"-n", router, "link", "add", port, "mtu", mtu, "type", "veth", "peer", "name", "eth0", "mtu", mtu, "netns", name},
			{"-n", router, "link", "set", port, "master", "bridge", "up"},
			{"-n", name, "addr", "add", nodeAddress(i) + "/24", "dev", "eth0"},
			{"-n", name, "link", "set", "eth0", "up"},
			{"-n", name, "link", "set", "lo", "up"},
		}...)
	}
	for _, c := range commands {
		if _, err := command(ctx, "ip", c...); err != nil {
			return err
		}
	}
	return n.passUnfiltered(ctx)
}

// passUnfiltered switches the machine's packet filter off for the bridge, because it is not part of the measurement. If
// the kernel has no bridge filter, this does nothing.
func (n network) passUnfiltered(ctx context.Context) error {
	const setting = "net/bridge/bridge-nf-call-iptables"
	if _, err := os.Stat("/proc/sys/" + setting); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, err := command(ctx, "ip", "netns", "exec", n.router(), "sysctl", "-q", "-w", setting+"=0")
	return err
}

// remove removes the existing parts of the network.
func (n network) remove(ctx context.Context) error {
	names, err := listNamespaces(ctx)
	errs := []error{err}
	for _, name := range names {
		if strings.HasPrefix(name, n.prefix) {
			errs = append(errs, removeNamespace(ctx, name))
		}
	}
	return errors.Join(errs...)
}

func listNamespaces(ctx context.Context) ([]string, error) {
	out, err := command(ctx, "ip", "netns", "list")
	if err != nil {
		return nil, err
	}
	names := []string{}
	for line := range strings.Lines(out) { // "name" or "name (id: 0)"
		if fields := strings.Fields(line); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return names, nil
}

// removeNamespace kills the remaining processes in a namespace and removes it. A bench created the namespace and
// therefore also these processes.
func removeNamespace(ctx context.Context, name string) error {
	out, err := command(ctx, "ip", "netns", "pids", name)
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(out) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL) // it may be gone
		}
	}
	_, err = command(ctx, "ip", "netns", "delete", name)
	return err
}

// commandTimeout bounds one command that creates or removes something.
const commandTimeout = 20 * time.Second

// command runs a program and returns its output. Its standard error is in the error.
func command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return string(out), nil
}
