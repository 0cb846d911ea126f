package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// insideCommand returns the command line by which this program becomes the first process of a machine.
func insideCommand(binary string) []string {
	return []string{binary, "component", "machine"}
}

func (c *Cluster) planeFiles() config.PlaneFiles {
	return config.PlaneFiles{
		EtcdDir:     c.path("etcd"),
		PKI:         c.path("pki"),
		Kubeconfigs: c.path("conf"),
		AuditPolicy: c.path("conf", "audit-policy.yaml"),
		AuditLog:    c.path("audit.log"),
		Corefile:    c.path("conf", "Corefile"),
	}
}

// makeNetwork creates the router and the control plane's namespace.
func (c *Cluster) makeNetwork() error {
	for _, name := range []string{c.routerNetns(), c.planeNetns()} {
		if err := netns.Create(name); err != nil {
			return err
		}
	}
	for _, members := range config.Members() {
		if err := netns.Blackhole(c.routerNetns(), members); err != nil {
			return err
		}
	}
	return netns.Join(c.routerNetns(), netns.Member{Name: c.planeNetns(), Port: port(0), IP: net.ParseIP(config.PlaneIP)})
}

// startPlane starts the control plane, with the listener through which the real machine reaches the API server. full is
// false for a cluster without nodes, which needs no scheduler and no DNS.
func (c *Cluster) startPlane(listener *net.TCPListener, full bool) error {
	f := c.planeFiles()
	if err := writeFile(f.AuditPolicy, config.AuditPolicy); err != nil {
		return err
	}
	if err := writeFile(f.Corefile, config.Corefile(f)); err != nil {
		return err
	}
	specFile := c.path("conf", "machine.json")
	if err := c.planeSpec(f, full).Write(specFile); err != nil {
		return err
	}
	return machine.Start(machine.Options{
		Command:  insideCommand(c.Binary()),
		SpecFile: specFile,
		Netns:    c.planeNetns(),
		Log:      c.path("log", "machine.log"),
		Listener: listener,
		Record: func(r proc.Record) error {
			c.state.Plane = r
			return c.save()
		},
	})
}

func (c *Cluster) planeSpec(f config.PlaneFiles, full bool) machine.Spec {
	api := fmt.Sprintf("%s:%d", config.PlaneIP, config.APIPort)
	program := func(name, after string, args []string) machine.Process {
		return machine.Process{
			Name:  name,
			Argv:  append([]string{c.Binary(), "component", name}, args...),
			Log:   c.path("log", name+".log"),
			After: after,
		}
	}
	forward := program("forward", "", []string{api})
	forward.Listener = true
	server := program("kube-apiserver", "127.0.0.1:2379", config.APIServerArgs(f))
	server.Orders = c.apiServerOrders()
	follower := func(name string, args []string) machine.Process {
		p := program(name, api, args)
		p.Orders = c.followerOrders()
		return p
	}
	s := machine.Spec{Hostname: c.Name + "-plane", Processes: []machine.Process{
		forward,
		program("etcd", "", config.EtcdArgs(f)),
		server,
		follower("kube-controller-manager", config.ControllerManagerArgs(f)),
	}}
	if full {
		s.Processes = append(s.Processes,
			follower("kube-scheduler", config.SchedulerArgs(f)),
			program("coredns", api, []string{"-conf", f.Corefile}),
		)
	}
	return s
}

// awaitAPI waits until the API server reports that it is ready.
func (c *Cluster) awaitAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return err
	}
	err = proc.WaitFor(ctx, 200*time.Millisecond, "the API server", func() error {
		if !c.state.Plane.IsAlive() {
			return fmt.Errorf("the control plane ended; see %s", c.path("log", "machine.log"))
		}
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; see %s", err, c.path("log", "kube-apiserver.log"))
	}
	return nil
}

// createObjects applies the objects of every cluster with nodes.
func (c *Cluster) createObjects(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, c.Binary(), "component", "kubectl", "apply", "-f", "-")
	cmd.Env = append(os.Environ(), c.KubectlEnv()...)
	cmd.Stdin = strings.NewReader(config.Objects())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("create the cluster's own objects: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// KubectlEnv makes kubectl use the cluster, and write nothing to the home directory.
func (l Layout) KubectlEnv() []string {
	return []string{"KUBECONFIG=" + l.Kubeconfig(), "KUBECACHEDIR=" + l.path("kubectl-cache")}
}
