package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// Forward starts a process that accepts connections on a port of 127.0.0.1. The process passes them on to target
// (ADDRESS:PORT, or NAMESPACE/SERVICE:PORT) from within the node named from, where service addresses work. Forward
// returns the address for clients. The process runs until the node stops.
func (c *Cluster) Forward(ctx context.Context, from, target string) (string, error) {
	if from == "" {
		for _, n := range c.state.Nodes {
			if n.Init.IsAlive() {
				from = n.Name
				break
			}
		}
	}
	if from == "" {
		return "", errors.New("no node runs to forward from")
	}
	n, err := c.state.runningNode(from)
	if err != nil {
		return "", err
	}
	target, err = c.resolve(ctx, target)
	if err != nil {
		return "", err
	}
	if _, _, err := net.SplitHostPort(target); err != nil {
		return "", fmt.Errorf("target to forward to: %w", err)
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = listener.Close() }()
	file, err := listener.File()
	if err != nil {
		return "", fmt.Errorf("hand listener over: %w", err)
	}
	defer file.Close()
	cmd := exec.Command(c.Binary(), "component", "forward", target)
	begin := func() error { return c.inNode(from, cmd.Start) }
	if n.Guest != nil { // a guest's network is reached through its agent
		cmd.Args = append(cmd.Args, c.routerNetns(), agentAddress(*n))
		begin = cmd.Start
	}
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := begin(); err != nil {
		return "", fmt.Errorf("start forwarding: %w", err)
	}
	record, err := proc.Of(cmd.Process.Pid)
	if err == nil {
		c.state.Forwards = append(c.state.Forwards, Forward{Listen: listener.Addr().String(), Target: target, From: from, Proc: record})
		err = c.save()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return "", err
	}
	return listener.Addr().String(), nil
}
