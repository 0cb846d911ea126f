package app

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/metrics"
)

// newRegistry returns a daemon's registry with the metrics of every Go process, and the metrics of its queues.
func newRegistry() (*prometheus.Registry, *queue.Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	queues, err := queue.NewMetrics(registry)
	if err != nil {
		return nil, nil, fmt.Errorf("register metrics: %w", err)
	}
	return registry, queues, nil
}

// registerNodeMetrics adds the metrics of this node. The name of the daemon's pod is the host name of its containers.
func (d *daemon) registerNodeMetrics(store *datastore.Datastore) error {
	pod, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of the daemon's pod: %w", err)
	}
	err = d.registry.Register(metrics.NewNode(metrics.NodeDeps{
		Node: d.node, Manager: pod, Nodes: store.Nodes, KubeNodes: store.KubeNodes, Replicas: store.Replicas, Engines: store.Engines,
		InstanceManagers: store.InstanceManagers, Pods: store.Pods,
		Leads: d.leads.isLeader, DeviceAt: d.deviceAt, Proc: "/proc", HostMounts: filepath.Join(d.hostRoot, "proc/1/mountinfo"),
		HostCgroups: filepath.Join(d.hostRoot, "sys/fs/cgroup"), Clock: d.env.Clock, Log: d.env.Log,
	}))
	if err != nil {
		return fmt.Errorf("register metrics of the node: %w", err)
	}
	return nil
}

// deviceAt returns the numbers of a block device on the node.
func (d *daemon) deviceAt(path string) (metrics.Device, bool) {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(d.hostRoot, path), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return metrics.Device{}, false
	}
	return metrics.Device{Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}, true
}

// registerClusterMetrics adds the metrics of the cluster, until unregister is called. The caches must be filled: with
// an empty cache, the metrics would report that there are no nodes. It panics if the metrics are already shown.
func (d *daemon) registerClusterMetrics(store *datastore.Datastore, claims *datastore.Workloads) (unregister func()) {
	deps := metrics.ClusterDeps{
		Volumes: store.Volumes, Engines: store.Engines, Nodes: store.Nodes, Settings: store.Settings, Shares: store.ShareManagers,
		Claims: claims, Log: d.env.Log,
	}
	if store.Snapshots.IsWatched() {
		deps.Snapshots = store.Snapshots
	}
	c := metrics.NewCluster(deps)
	if err := d.registry.Register(c); err != nil {
		panic("BUG: register metrics of the cluster: " + err.Error())
	}
	return func() { d.registry.Unregister(c) }
}
