package cluster

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
)

// Status prints what exists and whether it runs. It returns ErrNoCluster if the cluster does not exist.
func Status(ctx context.Context, l Layout, out io.Writer) error {
	s, err := loadState(l.stateFile())
	if err != nil {
		return err
	}
	c := &Cluster{Layout: l, state: s}
	ready := map[string]string{}
	if s.Plane.IsAlive() {
		if r, err := c.readiness(ctx); err == nil {
			ready = r
		} else {
			fmt.Fprintln(out, "The API server does not answer:", err)
		}
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "MACHINE\tSTATE\tKUBERNETES\tADDRESS\tPODS\tPROCESS\tKERNEL")
	fmt.Fprintf(t, "control-plane\t%s\t-\t%s\t-\t%d\tshared\n", runs(s.Plane.IsAlive()), config.PlaneIP, s.Plane.PID)
	for _, n := range s.Nodes {
		kube := ready[n.Name]
		if kube == "" {
			kube = "unknown"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", n.Name, nodeState(n), kube, config.NodeIP(n.Index), config.NodePods(n.Index), n.Init.PID, n.kernel())
	}
	if s.APIServer != "" {
		fmt.Fprintf(t, "The API server was told to %s; it answers again after: devcluster api-server run\n", s.APIServer)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print status: %w", err)
	}
	for _, f := range s.Forwards {
		fmt.Fprintf(out, "forward %s → %s from %s (%s)\n", f.Listen, f.Target, f.From, runs(f.Proc.IsAlive()))
	}
	fmt.Fprintf(out, "kubeconfig %s\n", l.Kubeconfig())
	if !s.Complete {
		fmt.Fprintln(out, "The cluster was not finished: devcluster up makes it anew.")
	}
	return nil
}

func runs(alive bool) string {
	if alive {
		return "running"
	}
	return "dead"
}

func nodeState(n Node) string {
	switch {
	case n.Stopped:
		return "stopped"
	case n.Init.IsAlive() && n.Frozen:
		return "frozen"
	case n.Init.IsAlive() && n.Cut:
		return "cut off"
	}
	return runs(n.Init.IsAlive())
}
