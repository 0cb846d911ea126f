package app

import (
	"context"
	"fmt"
	"net/http"

	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	"github.com/urfave/cli/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2" //nolint:depguard // the snapshotter logs to it, and it gets our log
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	"github.com/longhorn-lep/longhorn-manager/app/trust"
	"github.com/longhorn-lep/longhorn-manager/csi"
	"github.com/longhorn-lep/longhorn-manager/csi/sidecar"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/liblog"
)

func csiCommand() *cli.Command {
	endpoint := &cli.StringFlag{Name: "endpoint", Value: "unix:///csi/csi.sock", Usage: "CSI socket to serve on"}
	driver := &cli.StringFlag{Name: "driver-name", Value: types.DriverName, Usage: "name of the CSI driver"}
	health := &cli.StringFlag{Name: "health-address", Usage: "host:port of the health check; none if empty"}
	return &cli.Command{
		Name:  "csi",
		Usage: "the CSI driver",
		Commands: []*cli.Command{
			{
				Name:   "node",
				Usage:  "the node service, registered with the kubelet",
				Action: runCSINode,
				Flags: []cli.Flag{
					nodeFlag(), endpoint, driver, health,
					&cli.StringFlag{Name: "host-proc", Value: "/host/proc", Usage: "the node's /proc"},
					&cli.StringFlag{Name: "kubelet-dir", Value: "/var/lib/kubelet", Usage: "the kubelet's root directory"},
				},
			},
			{
				Name:   "controller",
				Usage:  "the controller service, with provisioner, attacher, resizer and snapshotter",
				Action: runCSIController,
				Flags: []cli.Flag{
					endpoint, driver, health,
					&cli.StringFlag{Name: "manager-url", Value: fmt.Sprintf("https://%s:%d/v1", types.APIService, types.APIPort), Usage: "URL of the manager's REST API. ConfigMap " + types.APICAConfigMap + " has its CA, and says whether it accepts requests without a token"},
					&cli.StringFlag{Name: "manager-token", Value: "/var/run/secrets/longhorn/token", Usage: "file with the token for the REST API"},
					&cli.StringFlag{Name: "namespace", Value: types.Namespace, Sources: cli.EnvVars("POD_NAMESPACE"), Usage: "namespace of the Lease for the leader election"},
					&cli.StringFlag{Name: "identity", Sources: cli.EnvVars("POD_NAME"), Required: true, Usage: "name of this process in the leader election"},
					&cli.StringFlag{Name: "kubeconfig", Usage: "kubeconfig file to use instead of the pod's service account"},
				},
			},
		},
	}
}

func runCSINode(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	return csi.RunNode(ctx, csi.NodeOptions{
		NodeID:        c.String("node-id"),
		Endpoint:      c.String("endpoint"),
		DriverName:    c.String("driver-name"),
		Version:       Version,
		KubeletDir:    c.String("kubelet-dir"),
		HostProc:      c.String("host-proc"),
		HealthAddress: c.String("health-address"),
		Log:           log,
	})
}

func runCSIController(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	klog.SetLogger(liblog.New(log)) // the log of the snapshotter's library
	clients, err := newClients(ctx, c.String("kubeconfig"), log)
	if err != nil {
		return err
	}
	transport := client.NewTransport(client.TransportOptions{
		Trust: trust.NewPublished(clients.kube, c.String("namespace"), clock.RealClock{}).Trust,
		Token: trust.TokenFile(c.String("manager-token")), ServerName: types.APIService,
	})
	defer transport.CloseIdleConnections()
	volumes, err := csi.NewManager(c.String("manager-url"), &http.Client{Transport: transport})
	if err != nil {
		return err
	}
	return csi.RunController(ctx, csi.ControllerOptions{
		Endpoint:      c.String("endpoint"),
		DriverName:    c.String("driver-name"),
		Version:       Version,
		Volumes:       volumes,
		HealthAddress: c.String("health-address"),
		Sidecar: sidecar.Options{
			Kube: clients.kube,
			KubeUntil: func(life context.Context) (kubernetes.Interface, error) {
				c, err := clients.until(life)
				if err != nil {
					return nil, err
				}
				return c.kube, nil
			},
			SnapshotsUntil: func(life context.Context) (snapshotclient.Interface, error) {
				c, err := clients.until(life)
				if err != nil {
					return nil, err
				}
				return snapshotclient.NewForConfig(c.config)
			},
			Namespace: c.String("namespace"),
			Identity:  c.String("identity"),
			Log:       log,
		},
		Log: log,
	})
}
