package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/controller/attachment"
	"github.com/longhorn-lep/longhorn-manager/controller/csidriver"
	"github.com/longhorn-lep/longhorn-manager/controller/drain"
	"github.com/longhorn-lep/longhorn-manager/controller/forcedeletion"
	"github.com/longhorn-lep/longhorn-manager/controller/handover"
	"github.com/longhorn-lep/longhorn-manager/controller/node"
	"github.com/longhorn-lep/longhorn-manager/controller/node/liveness"
	"github.com/longhorn-lep/longhorn-manager/controller/relocation"
	"github.com/longhorn-lep/longhorn-manager/controller/remount"
	"github.com/longhorn-lep/longhorn-manager/controller/setting"
	"github.com/longhorn-lep/longhorn-manager/controller/sharemanager"
	snapshots "github.com/longhorn-lep/longhorn-manager/controller/snapshot"
	"github.com/longhorn-lep/longhorn-manager/controller/storageclass"
	"github.com/longhorn-lep/longhorn-manager/controller/strandedengine"
	"github.com/longhorn-lep/longhorn-manager/controller/strandedreplica"
	"github.com/longhorn-lep/longhorn-manager/controller/unreachable"
	"github.com/longhorn-lep/longhorn-manager/controller/usage"
	"github.com/longhorn-lep/longhorn-manager/controller/volume"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/share"
	"github.com/longhorn-lep/longhorn-manager/util/healthprobe"
	"github.com/longhorn-lep/longhorn-manager/util/reach"
)

// lead does the leader's work for the whole cluster, with the leader's account.
func (d *daemon) lead(ctx context.Context) error {
	leader, end, err := d.asLeader(ctx)
	if err != nil {
		return err
	}
	defer end()
	return leader.leadCluster(ctx)
}

// asLeader returns this daemon with the leader's account. If the daemon runs with a person's account, it returns the
// daemon with its own account. After end has returned, no request of the term is sent, and no queued Event either.
func (d *daemon) asLeader(ctx context.Context) (leader *daemon, end func(), err error) {
	l := *d
	var endRequests func()
	if d.ownAccount {
		l.clients, endRequests, err = ownClients(d.clients)
	} else {
		l.clients, l.oldManifests, endRequests, err = leaderClients(ctx, d.clients, d.namespace, d.env.Clock, d.env.Log)
	}
	if err != nil {
		return nil, nil, err
	}
	var stopEvents func()
	l.env.Recorder, stopEvents = newRecorder(l.clients, "longhorn-manager", d.node, d.env.Log)
	return &l, func() { stopEvents(); endRequests() }, nil
}

// controllerFactory creates a controller of the leader.
type controllerFactory func(*datastore.Datastore) (runner, error)

// leadCluster runs the controllers of the cluster, and serves the REST API.
func (d *daemon) leadCluster(ctx context.Context) error {
	store := datastore.New(datastore.Options{Kube: d.clients.kube, Longhorn: d.clients.longhorn, Namespace: d.namespace, Kinds: d.clusterKinds()})
	s := &scope{store: store, workloads: datastore.NewWorkloads(d.clients.kube)}
	detector, err := d.newDetector(store)
	if err != nil {
		return fmt.Errorf("cluster controllers: %w", err)
	}
	factories := slices.Concat(d.volumeControllers(s.workloads), d.nodeControllers(s.workloads, detector), d.settingControllers())
	if !d.oldManifests {
		factories = append(factories, d.laterControllers(s.workloads, detector)...)
	}
	for _, add := range factories {
		r, err := add(store)
		if err != nil {
			return fmt.Errorf("cluster controllers: %w", err)
		}
		s.runners = append(s.runners, r)
	}
	return d.serveCluster(ctx, store, s)
}

// volumeControllers returns the controllers of volumes, of their attachment and of their usage.
func (d *daemon) volumeControllers(workloads *datastore.Workloads) []controllerFactory {
	return []controllerFactory{
		func(store *datastore.Datastore) (runner, error) {
			deps := volume.DepsOf(store)
			deps.Env, deps.Owner, deps.ShareImage = d.env, d.node, d.image
			return volume.New(deps)
		},
		func(store *datastore.Datastore) (runner, error) {
			return attachment.New(attachment.Deps{
				Env: d.env, Volumes: store.Volumes, VolumeAttachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas,
				ShareClients: store.ShareClients,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return relocation.New(relocation.Deps{Env: d.env, Replicas: store.Replicas, Nodes: store.Nodes, Engines: store.Engines})
		},
		func(store *datastore.Datastore) (runner, error) {
			return remount.New(remount.Deps{Env: d.env, Volumes: store.Volumes, Shares: store.ShareManagers, Workloads: workloads, Setting: store.Setting})
		},
		func(store *datastore.Datastore) (runner, error) {
			return usage.New(usage.Deps{Env: d.env, Volumes: store.Volumes, Workloads: workloads})
		},
		func(store *datastore.Datastore) (runner, error) {
			return strandedengine.New(strandedengine.Deps{
				Env: d.env, Owner: d.node, Engines: store.Engines, Nodes: store.Nodes, KubeNodes: store.KubeNodes, Volumes: store.Volumes,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return strandedreplica.New(strandedreplica.Deps{
				Env: d.env, Owner: d.node, Replicas: store.Replicas, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
				Volumes: store.Volumes, Engines: store.Engines,
			})
		},
	}
}

// nodeControllers returns the controllers of nodes, and of pods whose node is down.
func (d *daemon) nodeControllers(workloads *datastore.Workloads, detector *liveness.Detector) []controllerFactory {
	return []controllerFactory{
		func(*datastore.Datastore) (runner, error) { return detector, nil },
		func(store *datastore.Datastore) (runner, error) {
			return node.NewMonitor(node.MonitorDeps{
				Env: d.env, Nodes: store.Nodes, KubeNodes: store.KubeNodes, Pods: store.Pods, Engines: store.Engines, Replicas: store.Replicas,
				Liveness: detector, Answers: reach.Any,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return handover.New(handover.Deps{Env: d.env, Node: d.node, Nodes: store.Nodes, Pods: store.Pods, Setting: store.Setting}), nil
		},
		func(store *datastore.Datastore) (runner, error) {
			return node.NewDeparture(node.DepartureDeps{Env: d.env, Nodes: store.Nodes, KubeNodes: store.KubeNodes, InstanceManagers: store.InstanceManagers})
		},
		func(store *datastore.Datastore) (runner, error) {
			return node.NewLeases(node.LeasesDeps{Env: d.env, Leases: store.Leases, Nodes: store.Nodes, Replicas: store.Replicas}), nil
		},
		func(store *datastore.Datastore) (runner, error) {
			return unreachable.New(unreachable.Deps{Env: d.env, Nodes: store.Nodes, Replicas: store.Replicas, Managers: store.InstanceManagers})
		},
		func(store *datastore.Datastore) (runner, error) {
			return forcedeletion.New(forcedeletion.Deps{
				Env: d.env, Nodes: store.Nodes, Volumes: store.Volumes, Settings: store.Settings, Setting: store.Setting, Workloads: workloads,
				KubeNodes: store.KubeNodes, Leases: store.Leases, Answers: reach.Any,
			})
		},
	}
}

// settingControllers returns the controllers of settings, and of objects that settings define.
func (d *daemon) settingControllers() []controllerFactory {
	return []controllerFactory{
		func(store *datastore.Datastore) (runner, error) {
			deps := setting.Deps{Env: d.env, Namespace: d.namespace, Settings: store.Settings, Defaults: store.DefaultSettings, Pods: store.Pods}
			if !d.oldManifests {
				deps.Classes, deps.ConfigMaps = store.PriorityClasses, store.DefaultSettings
			}
			return setting.New(deps)
		},
		func(store *datastore.Datastore) (runner, error) {
			return storageclass.New(storageclass.Deps{Env: d.env, ConfigMap: store.StorageClassConfig, Classes: store.StorageClasses})
		},
	}
}

// laterControllers returns the controllers that need rights which the manifests of the first release do not grant.
func (d *daemon) laterControllers(workloads *datastore.Workloads, detector *liveness.Detector) []controllerFactory {
	return []controllerFactory{
		func(store *datastore.Datastore) (runner, error) {
			deps := snapshots.DepsOf(store)
			deps.Env, deps.Owner = d.env, d.node
			return snapshots.New(deps)
		},
		func(store *datastore.Datastore) (runner, error) {
			return csidriver.New(csidriver.Deps{Env: d.env, Drivers: store.CSIDrivers, Settings: store.Settings, Setting: store.Setting})
		},
		func(store *datastore.Datastore) (runner, error) {
			return drain.New(drain.Deps{
				Env: d.env, Volumes: store.Volumes, Attachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas,
				Nodes: store.Nodes, KubeNodes: store.KubeNodes, Managers: store.InstanceManagers, Budgets: store.Budgets,
				Settings: store.Settings, Setting: store.Setting,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return sharemanager.New(sharemanager.Deps{
				Env: d.env, Owner: d.node, Shares: store.ShareManagers, Volumes: store.Volumes, Attachments: store.VolumeAttachments,
				Nodes: store.Nodes, KubeNodes: store.KubeNodes, Pods: store.Pods, Services: store.Services,
				Slices: store.EndpointSlices, ConfigMap: store.ShareClients,
				Engines: store.Engines, Replicas: store.Replicas, Claims: workloads, Classes: store.StorageClasses, Ask: share.AskRecovery,
				Setting: store.Setting, Silences: detector, Serving: healthprobe.Serving, Managers: store.InstanceManagers, Answers: reach.Any,
			})
		},
		func(store *datastore.Datastore) (runner, error) {
			return sharemanager.NewClients(sharemanager.ClientsDeps{
				Env: d.env, Namespace: d.namespace, ConfigMap: store.ShareClients, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
				Settings: store.Settings, Setting: store.Setting,
			})
		},
	}
}

// serveCluster runs the controllers of the cluster. After the caches are filled, it also serves the REST API and the
// metrics of the cluster.
func (d *daemon) serveCluster(ctx context.Context, store *datastore.Datastore, s *scope) error {
	unregister, end := func() {}, func() {}
	defer func() { unregister() }()
	defer func() { end() }()
	authority := d.newAuthority(store)
	s.runners = append(s.runners, authority)
	return s.run(ctx, func(ctx context.Context) error {
		if err := d.decideTrustedNetwork(ctx, store); err != nil {
			return err
		}
		// This comes before the API is served, so that a client that is refused can read from the ConfigMap how to
		// connect. It is repeated until it succeeds.
		if err := authority.Publish(ctx); err != nil {
			d.env.Log.WithError(err).Warn("The leader could not publish the REST API's certificates; it retries")
		}
		unregister = d.registerClusterMetrics(store, s.workloads)
		end = d.rest.open(ctx, d.newServer(store, s.workloads))
		return nil
	})
}

// clusterKinds are the kinds that the leader watches; nil: all. If it watched a kind without the right to do so, its
// caches would never be filled.
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
