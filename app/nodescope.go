package app

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/engine"
	"github.com/longhorn-lep/longhorn-manager/controller/heartbeat"
	"github.com/longhorn-lep/longhorn-manager/controller/instancemanager"
	"github.com/longhorn-lep/longhorn-manager/controller/node"
	"github.com/longhorn-lep/longhorn-manager/controller/replica"
	"github.com/longhorn-lep/longhorn-manager/controller/upgrade"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mountwatch"
)

// nodeScope has the controllers that every daemon runs for its own node.
type nodeScope struct {
	scope
	synced chan struct{} // closed when the caches are filled
}

func (n *nodeScope) run(ctx context.Context) error {
	return n.scope.run(ctx, func(context.Context) error { close(n.synced); return nil })
}

func (n *nodeScope) healthy() error {
	select {
	case <-n.synced:
		return nil
	default:
		return publicReason("it has not read all objects of its node yet")
	}
}

func (d *daemon) newNodeScope() (*nodeScope, error) {
	store := datastore.New(datastore.Options{
		Kube: d.clients.kube, Longhorn: d.clients.longhorn, Namespace: d.namespace, Node: d.node,
		Kinds: []datastore.Kind{
			datastore.Engines, datastore.Replicas, datastore.Nodes, datastore.Settings,
			datastore.InstanceManagers, datastore.Pods, datastore.KubeNodes,
		},
	})
	hostDisks := node.HostDisks{Root: d.hostRoot}
	nodes, err := node.New(node.Deps{
		Env:  d.env,
		Node: d.node, Namespace: d.namespace,
		Nodes: store.Nodes, KubeNodes: store.KubeNodes, Replicas: store.Replicas,
		Settings: store.Settings, Setting: store.Setting, Disks: hostDisks,
		Claims: store.Leases, WatchMounts: mountwatch.Watch, Environment: hostDisks.Environment,
		DefaultSettings: store.DefaultSettings, DataPlane: d.plane.Node,
		NFSClient: node.HostNFSClient{Directory: filepath.Join(d.hostRoot, types.NFSClientDirectory)}.Identify,
	})
	if err != nil {
		return nil, fmt.Errorf("node controller: %w", err)
	}
	managers, err := instancemanager.New(instancemanager.Deps{
		Node: d.node, Pod: instancemanager.PodOptions{Image: d.image, Devices: d.devices},
		Nodes: store.Nodes, InstanceManagers: store.InstanceManagers, Pods: store.Pods,
		Engines: store.Engines, Replicas: store.Replicas, DataPlane: d.plane,
		Setting: store.Setting, Settings: store.Settings, KubeNodes: store.KubeNodes,
		Env: d.env,
	})
	if err != nil {
		return nil, fmt.Errorf("instance manager controller: %w", err)
	}
	engines, err := engine.New(engine.Deps{
		Env: d.env, Node: d.node, Engines: store.Engines, Replicas: store.Replicas,
		VolumeKey: store.VolumeKey, Setting: store.Setting, DataPlane: enginePlane{d.plane},
	})
	if err != nil {
		return nil, fmt.Errorf("engine controller: %w", err)
	}
	replicas, err := replica.New(replica.Deps{
		Env: d.env, Node: d.node, Replicas: store.Replicas, Nodes: store.Nodes, InstanceManagers: store.InstanceManagers,
		Volumes: store.Volumes, Engines: store.Engines, VolumeKey: store.VolumeKey, DataPlane: d.plane,
		ReservePercent: func() int64 { return settings.Values(store.Setting).Int(settings.MinimalAvailablePercentage) },
	})
	if err != nil {
		return nil, fmt.Errorf("replica controller: %w", err)
	}
	beats := heartbeat.New(heartbeat.Deps{Env: d.env, Node: d.node, Leases: store.Leases})
	upgrades := upgrade.New(upgrade.Deps{
		Env: d.env, Node: d.node, Version: Version,
		Engines: store.Engines, Replicas: store.Replicas, Volumes: store.Volumes, InstanceManagers: store.InstanceManagers,
		Leases: store.Leases, DataPlane: d.plane,
	})
	d.plane.changed = func(diff stateDiff) {
		if diff.all { // these controllers use nothing of an engine or a replica
			nodes.NotifyDataPlane()
			upgrades.Notify()
		}
		if diff.all || diff.hosts { // it may replace the pod of a process that hosts nothing
			managers.Notify()
		}
		if diff.all || diff.phases {
			engines.NotifyAll()
		} else {
			engines.Notify(diff.engines...)
		}
		if diff.all {
			replicas.NotifyAll()
		} else {
			replicas.Notify(diff.replicas...)
		}
	}
	return &nodeScope{
		scope: scope{store: store, runners: []runner{
			nodes, managers, engines, replicas, upgrades, beats,
			resync{d.env.Clock, []func(){engines.NotifyAll, replicas.NotifyAll}},
		}},
		synced: make(chan struct{}),
	}, nil
}

// resyncInterval is how often all engines and replicas of the node are synced without a notification.
const resyncInterval = time.Minute

// resync syncs everything now and then. Notifications name what changed, and the informers have no resync: a lost
// notification would otherwise stay lost.
type resync struct {
	clock clock.WithTicker
	sync  []func()
}

// Run implements runner.
func (r resync) Run(ctx context.Context) error {
	ticker := r.clock.NewTicker(resyncInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			for _, sync := range r.sync {
				sync()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
