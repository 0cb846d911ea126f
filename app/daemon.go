package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/app/trust"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/ui"
	"github.com/longhorn-lep/longhorn-manager/util/devusers"
	"github.com/longhorn-lep/longhorn-manager/util/reach"
)

func daemonCommand() *cli.Command {
	return &cli.Command{
		Name:   "daemon",
		Usage:  "controllers and the REST API, one per node",
		Action: runDaemon,
		Flags: []cli.Flag{
			nodeFlag(),
			&cli.StringFlag{Name: "namespace", Value: types.Namespace, Sources: cli.EnvVars("POD_NAMESPACE"), Usage: "namespace of the installation"},
			&cli.StringFlag{Name: "pod-ip", Sources: cli.EnvVars("POD_IP"), Required: true, Usage: "address at which other daemons reach this daemon's REST API"},
			&cli.StringFlag{Name: "host-root", Value: "/host", Usage: "where the node's root directory is mounted"},
			&cli.StringFlag{Name: "instance-manager-image", Required: true, Usage: "image of the data plane's pod"},
			&cli.StringFlag{Name: "instance-manager-socket", Value: types.InstanceManagerSocket(), Usage: "gRPC socket of the data plane"},
			&cli.StringFlag{Name: "holder-socket", Value: types.HolderSocket(), Usage: "socket of the holder, the process that holds the data plane's block devices"},
			&cli.StringFlag{Name: "devices", Sources: cli.EnvVars(devicesEnv), Usage: "kind of the new block devices of instance managers that start from now on: auto, or fuse", Validator: isDevices},
			&cli.StringFlag{Name: "listen", Value: fmt.Sprintf(":%d", types.APIPort), Usage: "host:port of the REST API"},
			&cli.StringFlag{Name: "api-audience", Value: types.APIAudience, Usage: "audience of the tokens that the REST API accepts; empty: the API server's own audience"},
			&cli.StringFlag{Name: "kubeconfig", Usage: "kubeconfig file to use instead of the pod's service account"},
		},
	}
}

// daemon is the common part of both scopes of controllers.
type daemon struct {
	node, namespace string
	hostRoot        string
	image           string
	devices         string // of instance managers; "": their default
	clients         *clients
	// Clients of the daemon's own account, also while the field clients has those of the leader's account.
	own      *clients
	audience string // of the REST API's tokens
	env      queue.Env
	registry *prometheus.Registry
	plane    *dataPlane
	leads    *leadership
	rest     *restAPI
	// ownAccount: the clients above also do the leader's work, because they are a person's.
	ownAccount bool
	// oldManifests are manifests of the first version. They grant no account a right to disruption budgets. So nodes
	// are drained without these, as in that version.
	oldManifests bool
}

func runDaemon(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	clients, err := newClients(ctx, c.String("kubeconfig"), log)
	if err != nil {
		return err
	}
	d := &daemon{
		node: c.String("node-id"), namespace: c.String("namespace"), hostRoot: c.String("host-root"),
		image: c.String("instance-manager-image"), devices: c.String("devices"), clients: clients, own: clients, env: queue.Env{Clock: clock.RealClock{}, Log: log},
		leads: newLeadership(c.String("node-id"), c.String("pod-ip")), ownAccount: c.String("kubeconfig") != "",
		audience: c.String("api-audience"),
	}
	if d.registry, d.env.Metrics, err = newRegistry(); err != nil {
		return err
	}
	var stopEvents func()
	d.env.Recorder, stopEvents = newRecorder(clients, "longhorn-manager", d.node, log)
	defer stopEvents()
	if d.plane, err = newDataPlane(c.String("instance-manager-socket"), c.String("holder-socket")); err != nil {
		return err
	}
	defer d.plane.close()
	d.plane.users = d.deviceUsers
	return d.run(ctx, c.String("listen"))
}

// deviceUsers returns the users of an engine's device on the host.
func (d *daemon) deviceUsers(engine string) []string {
	return devusers.Of(d.hostRoot, types.DevicePath(strings.TrimSuffix(engine, types.EngineName(""))))
}

// run runs this node's part, and the cluster's part while this daemon leads. If one part ends, the others end too: a
// daemon does all of its work or none.
func (d *daemon) run(ctx context.Context, listen string) error {
	node, err := d.newNodeScope()
	if err != nil {
		return err
	}
	if err := d.registerNodeMetrics(node.store); err != nil {
		return err
	}
	page, err := ui.New()
	if err != nil {
		return err
	}
	trusted := func() bool { return isTrustedNetwork(node.store) }
	reviews := trust.NewReviews(d.clients.kube, d.namespace, d.audience, d.env.Clock)
	trims := d.newTrims(node.store)
	defer trims.Close()
	admitted := newAdmission(d.env.Clock, d.env.Log)
	d.rest = newRESTAPI(d.leads, d.registry, func() error { return cmp.Or(admitted.waiting(), node.healthy()) }, restAccess{
		reviews:  reviews,
		scrapers: trust.UnionAccess{First: reviews, Second: trust.NewReviews(d.clients.kube, d.namespace, "", d.env.Clock)},
		identity: trust.NewIdentity(d.clients.kube, d.namespace, trusted, d.env.Clock),
		trusted:  trusted, clock: d.env.Clock,
	}, page, api.NewNodeHandler(d.node, api.NodeDeps{
		Trimmer: trims, Log: d.env.Log,
		Reacher: witness{kubeNodes: node.store.KubeNodes, pods: node.store.Pods, managers: node.store.InstanceManagers, answers: reach.Any},
	}), d.env.Log)

	err = d.runParts(ctx, listen, admitted, node)
	if ctx.Err() != nil && errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// runParts immediately starts the REST API and the watch of the data plane, so that a waiting daemon can report the
// reason. It starts the other parts when it is known that the cluster has no other Longhorn.
func (d *daemon) runParts(ctx context.Context, listen string, admitted *admission, node *nodeScope) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return ended("REST API", d.rest.run(ctx, listen)) })
	group.Go(func() error { return ended("watch of the data plane", d.plane.watch(ctx)) })
	group.Go(func() error {
		if err := admitted.await(ctx, d.clients.metadata, d.namespace); err != nil {
			return err
		}
		group.Go(func() error { return ended("node controllers", node.run(ctx)) })
		group.Go(func() error {
			return ended("leader election", d.leads.run(ctx, d.clients.kube, d.namespace, d.env.Log, d.lead))
		})
		return ended("watch of the log level", followLogLevel(ctx, node.store, d.env.Log.Logger))
	})
	return group.Wait()
}

// errEnded marks a part that ended without an error.
var errEnded = errors.New("ended")

// ended turns the end of a part into an error, so that the other parts end too.
func ended(part string, err error) error {
	if err == nil {
		err = errEnded
	}
	return fmt.Errorf("%s: %w", part, err)
}
