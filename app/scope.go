package app

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/controller/attachment"
	"github.com/longhorn-lep/longhorn-manager/controller/csidriver"
	"github.com/longhorn-lep/longhorn-manager/controller/drain"
	"github.com/longhorn-lep/longhorn-manager/controller/engine"
	"github.com/longhorn-lep/longhorn-manager/controller/engine/abandon"
	"github.com/longhorn-lep/longhorn-manager/controller/forcedeletion"
	"github.com/longhorn-lep/longhorn-manager/controller/heartbeat"
	"github.com/longhorn-lep/longhorn-manager/controller/instancemanager"
	"github.com/longhorn-lep/longhorn-manager/controller/node"
	"github.com/longhorn-lep/longhorn-manager/controller/outage"
	"github.com/longhorn-lep/longhorn-manager/controller/relocation"
	"github.com/longhorn-lep/longhorn-manager/controller/remount"
	"github.com/longhorn-lep/longhorn-manager/controller/replica"
	"github.com/longhorn-lep/longhorn-manager/controller/replica/orphan"
	"github.com/longhorn-lep/longhorn-manager/controller/setting"
	"github.com/longhorn-lep/longhorn-manager/controller/sharemanager"
	"github.com/longhorn-lep/longhorn-manager/controller/storageclass"
	"github.com/longhorn-lep/longhorn-manager/controller/upgrade"
	"github.com/longhorn-lep/longhorn-manager/controller/volume"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/share"
	"github.com/longhorn-lep/longhorn-manager/util/mountwatch"
	"github.com/longhorn-lep/longhorn-manager/util/reach"
)

// runner is a controller.
type runner interface{ Run(context.Context) error }

// scope is a datastore and the controllers over it.
type scope struct {
	store *datastore.Datastore
	// workloads is nil if no controller looks at them.
	workloads *datastore.Workloads
	runners   []runner
}

// run fills the caches, calls ready, and runs the controllers until ctx ends, or until ready or one of them fails. It returns when all
// have come to rest, the caches too.
func (s *scope) run(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.wait()
	defer cancel() // before the wait: the caches end with ctx alone
	if err := s.fill(ctx); err != nil {
		return err
	}
	if err := ready(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range s.runners {
		group.Go(func() error { return r.Run(ctx) })
	}
	return group.Wait()
}

// fill returns when the caches were filled once.
func (s *scope) fill(ctx context.Context) error {
	s.store.Start(ctx)
	if s.workloads != nil {
		s.workloads.Start(ctx)
	}
	if err := s.store.WaitForSync(ctx); err != nil || s.workloads == nil {
		return err
	}
	return s.workloads.WaitForSync(ctx)
}

// wait returns when the caches, whose context must have ended, have come to rest.
func (s *scope) wait() {
	s.store.Wait()
	if s.workloads != nil {
		s.workloads.Wait()
	}
}

// nodeScope is what every daemon does for its own node.
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
		return errors.New("the caches of this node's objects are not filled yet")
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
	})
	if err != nil {
		return nil, fmt.Errorf("replica controller: %w", err)
	}
	beats, err := heartbeat.New(heartbeat.Deps{Env: d.env, Node: d.node, Pods: store.Pods, Leases: store.Leases, Nodes: store.Nodes, Settings: store.Settings, Setting: store.Setting})
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	upgrades := upgrade.New(upgrade.Deps{
		Env: d.env, Node: d.node, Version: Version,
		Engines: store.Engines, Replicas: store.Replicas, Volumes: store.Volumes, InstanceManagers: store.InstanceManagers,
		Leases: store.Leases, DataPlane: d.plane,
	})
	d.plane.changed = []func(){nodes.NotifyDataPlane, managers.Notify, engines.NotifyAll, replicas.NotifyAll, upgrades.Notify}
	return &nodeScope{
		scope:  scope{store: store, runners: []runner{nodes, managers, engines, replicas, upgrades, beats}},
		synced: make(chan struct{}),
	}, nil
}

// lead is what the leader does for the whole cluster, with the leader's account.
func (d *daemon) lead(ctx context.Context) error {
	if d.ownAccount {
		return d.leadCluster(ctx)
	}
	leader, end, err := d.asLeader(ctx)
	if err != nil {
		return err
	}
	defer end()
	return leader.leadCluster(ctx)
}

// asLeader is this daemon with the leader's account. When end has returned, no request is sent with it, nor an Event that waits.
func (d *daemon) asLeader(ctx context.Context) (leader *daemon, end func(), err error) {
	l := *d
	var drop func()
	if l.clients, drop, err = leaderClients(ctx, d.clients, d.namespace, d.env.Clock, d.env.Log); err != nil {
		return nil, nil, err
	}
	l.oldManifests = l.clients == d.clients
	var stopEvents func()
	l.env.Recorder, stopEvents = newRecorder(l.clients, "longhorn-manager", d.node, d.env.Log)
	return &l, func() { stopEvents(); drop() }, nil
}

func (d *daemon) leadCluster(ctx context.Context) error {
	store := datastore.New(datastore.Options{Kube: d.clients.kube, Longhorn: d.clients.longhorn, Namespace: d.namespace, Kinds: d.clusterKinds()})
	s := &scope{store: store, workloads: datastore.NewWorkloads(d.clients.kube)}
	for _, add := range []func(*datastore.Datastore) (runner, error){
		func(store *datastore.Datastore) (runner, error) {
			deps := volume.DepsOf(store)
			deps.Env, deps.Owner, deps.ShareImage = d.env, d.node, d.image
			return volume.New(deps)
		},
		func(store *datastore.Datastore) (runner, error) {
			return attachment.New(attachment.Deps{
				Env: d.env, Volumes: store.Volumes, VolumeAttachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			deps := setting.Deps{Env: d.env, Namespace: d.namespace, Settings: store.Settings, Defaults: store.DefaultSettings, Pods: store.Pods}
			if !d.oldManifests {
				deps.Classes = store.PriorityClasses
			}
			return setting.New(deps)
		},
		func(store *datastore.Datastore) (runner, error) {
			if d.oldManifests {
				return nil, nil
			}
			return csidriver.New(csidriver.Deps{Env: d.env, Drivers: store.CSIDrivers, Settings: store.Settings, Setting: store.Setting})
		},
		func(store *datastore.Datastore) (runner, error) {
			return storageclass.New(storageclass.Deps{Env: d.env, ConfigMap: store.StorageClassConfig, Classes: store.StorageClasses})
		},
		func(store *datastore.Datastore) (runner, error) {
			deps := node.MonitorDeps{Env: d.env, Nodes: store.Nodes, KubeNodes: store.KubeNodes, Pods: store.Pods, Answers: reach.Any}
			if !d.oldManifests {
				deps.Leases = store.NodeLeases
			}
			return node.NewMonitor(deps)
		},
		func(store *datastore.Datastore) (runner, error) {
			return node.NewDeparture(node.DepartureDeps{Env: d.env, Nodes: store.Nodes, KubeNodes: store.KubeNodes, InstanceManagers: store.InstanceManagers})
		},
		func(store *datastore.Datastore) (runner, error) {
			return node.NewLeases(node.LeasesDeps{Env: d.env, Leases: store.Leases, Nodes: store.Nodes, Replicas: store.Replicas}), nil
		},
		func(store *datastore.Datastore) (runner, error) {
			if d.oldManifests {
				return nil, nil
			}
			return drain.New(drain.Deps{
				Env: d.env, Volumes: store.Volumes, Attachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas,
				Nodes: store.Nodes, KubeNodes: store.KubeNodes, Managers: store.InstanceManagers, Budgets: store.Budgets,
				Settings: store.Settings, Setting: store.Setting,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			if d.oldManifests {
				return nil, nil
			}
			return sharemanager.New(sharemanager.Deps{
				Env: d.env, Owner: d.node, Shares: store.ShareManagers, Volumes: store.Volumes, Attachments: store.VolumeAttachments,
				Nodes: store.Nodes, KubeNodes: store.KubeNodes, Pods: store.Pods, Services: store.Services,
				ConfigMap: store.ShareClients,
				Engines:   store.Engines, Replicas: store.Replicas, Claims: s.workloads, Classes: store.StorageClasses, Ask: share.AskRecovery,
				Setting: store.Setting,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			if d.oldManifests {
				return nil, nil
			}
			return sharemanager.NewClients(sharemanager.ClientsDeps{
				Env: d.env, Namespace: d.namespace, ConfigMap: store.ShareClients, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
				Settings: store.Settings, Setting: store.Setting,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return relocation.New(relocation.Deps{Env: d.env, Replicas: store.Replicas, Nodes: store.Nodes, Engines: store.Engines})
		},
		func(store *datastore.Datastore) (runner, error) {
			return remount.New(remount.Deps{Env: d.env, Volumes: store.Volumes, Shares: store.ShareManagers, Workloads: s.workloads, Setting: store.Setting})
		},
		func(store *datastore.Datastore) (runner, error) {
			return forcedeletion.New(forcedeletion.Deps{
				Env: d.env, Nodes: store.Nodes, Volumes: store.Volumes, Settings: store.Settings, Setting: store.Setting, Workloads: s.workloads,
				KubeNodes: store.KubeNodes, Leases: store.Leases, Answers: reach.Any,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return abandon.New(abandon.Deps{
				Env: d.env, Owner: d.node, Engines: store.Engines, Nodes: store.Nodes, KubeNodes: store.KubeNodes, Volumes: store.Volumes,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return outage.New(outage.Deps{Env: d.env, Nodes: store.Nodes, Replicas: store.Replicas, Managers: store.InstanceManagers})
		},
		func(store *datastore.Datastore) (runner, error) {
			return orphan.New(orphan.Deps{
				Env: d.env, Owner: d.node, Replicas: store.Replicas, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
				Volumes: store.Volumes, Engines: store.Engines,
			})
		},
	} {
		r, err := add(store)
		if err != nil {
			return fmt.Errorf("cluster controllers: %w", err)
		}
		if r != nil {
			s.runners = append(s.runners, r)
		}
	}
	return d.serveCluster(ctx, store, s)
}

// serveCluster runs the controllers of the cluster, and serves the REST API and the metrics of the cluster once the caches are filled.
func (d *daemon) serveCluster(ctx context.Context, store *datastore.Datastore, s *scope) error {
	hide, end := func() {}, func() {}
	defer func() { hide() }()
	defer func() { end() }()
	authority := d.newAuthority(store)
	s.runners = append(s.runners, authority)
	return s.run(ctx, func(ctx context.Context) error {
		if err := d.decideTrustedNetwork(ctx, store); err != nil {
			return err
		}
		// Before the API is served: whoever is refused can learn how to do better. It is done again until it succeeds.
		if err := authority.Publish(ctx); err != nil {
			d.env.Log.WithError(err).Warn("The REST API's certificates are not published yet")
		}
		hide = d.showCluster(store, s.workloads)
		end = d.rest.open(ctx, d.newServer(store, s.workloads))
		return nil
	})
}

// clusterKinds are what the leader watches; nil: all. A kind that it may not watch would keep it
// from ever beginning.
func (d *daemon) clusterKinds() []datastore.Kind {
	if !d.oldManifests {
		return nil
	}
	return []datastore.Kind{
		datastore.Volumes, datastore.VolumeAttachments, datastore.Engines, datastore.Replicas, datastore.Nodes, datastore.Settings,
		datastore.InstanceManagers, datastore.Pods, datastore.KubeNodes, datastore.ShareManagers,
	}
}

func (d *daemon) newServer(store *datastore.Datastore, claims *datastore.Workloads) *api.Server {
	deps := manager.DepsOf(store, claims, d.env.Clock, d.env.Log)
	deps.Version = Version
	deps.Daemons = d.rest.peers
	m := manager.New(deps)
	return api.NewServer(api.Deps{Manager: m, Clock: d.env.Clock, Log: d.env.Log})
}
