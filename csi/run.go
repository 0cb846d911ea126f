package csi

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/longhorn-lep/longhorn-manager/csi/sidecar"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// How often and how long the controller service reads a volume for a caller.
const (
	pollInterval = time.Second
	maxWait      = 90 * time.Second
)

// NodeOptions configure the node role.
type NodeOptions struct {
	// NodeID is the name of the Kubernetes node, which is also the manager's name for it.
	NodeID string
	// Endpoint is the CSI socket, unix:///… . The kubelet must find it at the same path.
	Endpoint string
	// DriverName; empty means types.DriverName.
	DriverName string
	// Version of the driver, shown to users.
	Version string
	// KubeletDir is the kubelet's root directory, the same path here and on the host;
	// empty means /var/lib/kubelet. It must be mounted with bidirectional propagation.
	KubeletDir string
	// DeviceDirectory; empty means types.DeviceDirectory.
	DeviceDirectory string
	// HostProc is the node's /proc, as this process sees it; empty means /host/proc. The driver uses it to mount shares
	// in the node's network.
	HostProc string
	// HealthAddress is host:port of the health check over HTTP; empty means none.
	HealthAddress string
	Log           *logrus.Entry
}

// RunNode serves the node service and keeps it registered with the kubelet until ctx is done. The CSI socket listens
// before the registration socket appears, because the kubelet calls the driver while it registers it.
func RunNode(ctx context.Context, o NodeOptions) error {
	if o.NodeID == "" {
		return fmt.Errorf("node id is missing")
	}
	if o.DriverName == "" {
		o.DriverName = types.DriverName
	}
	if o.KubeletDir == "" {
		o.KubeletDir = "/var/lib/kubelet"
	}
	if o.DeviceDirectory == "" {
		o.DeviceDirectory = types.DeviceDirectory
	}
	if o.HostProc == "" {
		o.HostProc = "/host/proc"
	}
	path, err := socketPath(o.Endpoint)
	if err != nil {
		return err
	}
	mounts := mount.New().WithNFS(mount.NodeNFS{Proc: filepath.Join(o.HostProc, "1")})
	driver := &nodeServer{nodeID: o.NodeID, core: &node{
		mounts: mounts, devices: o.DeviceDirectory, log: o.Log, serviceAddress: lookUpService(ctx, resolverFile), beforeNFS: newClientID(o, mounts).beforeMount,
	}}
	listener, err := listenUnix(path)
	if err != nil {
		return err
	}
	registry, err := listenUnix(registrationSocket(o.KubeletDir, o.DriverName))
	if err != nil {
		_ = listener.Close()
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return serve(ctx, listener, o.Log, func(s *grpc.Server) {
			csipb.RegisterIdentityServer(s, &identity{driver: o.DriverName, version: o.Version})
			csipb.RegisterNodeServer(s, driver)
		})
	})
	group.Go(func() error {
		return serve(ctx, registry, o.Log, func(s *grpc.Server) {
			registration.RegisterRegistrationServer(s, &registrationServer{driver: o.DriverName, endpoint: path, log: o.Log})
		})
	})
	group.Go(func() error { return newFollower(o, mounts).run(ctx) })
	if o.HealthAddress != "" {
		group.Go(func() error { return serveHealth(ctx, o.HealthAddress, path) })
	}
	o.Log.WithFields(logrus.Fields{"endpoint": path, "node": o.NodeID}).Info("Node service started")
	return group.Wait()
}

// ControllerOptions configure the controller role.
type ControllerOptions struct {
	// Endpoint is the CSI socket, unix:///… . The usual sidecars may use it too.
	Endpoint string
	// DriverName; empty means types.DriverName.
	DriverName string
	// Version of the driver, shown to users.
	Version string
	// Volumes is the manager; see NewManager.
	Volumes VolumeService
	// HealthAddress is host:port of the health check over HTTP; empty means none.
	HealthAddress string
	// Sidecar configures provisioner, attacher and resizer. RunController sets its Endpoint, DriverName,
	// CheckParameters and WithoutEffect.
	Sidecar sidecar.Options
	Log     *logrus.Entry
}

// RunController serves the controller service until ctx is done, and runs provisioner, attacher and resizer over it
// while this process leads.
func RunController(ctx context.Context, o ControllerOptions) error {
	if o.DriverName == "" {
		o.DriverName = types.DriverName
	}
	path, err := socketPath(o.Endpoint)
	if err != nil {
		return err
	}
	listener, err := listenUnix(path)
	if err != nil {
		return err
	}
	o.Sidecar.Endpoint, o.Sidecar.DriverName = path, o.DriverName
	o.Sidecar.CheckParameters, o.Sidecar.WithoutEffect = CheckParameters, types.ParametersWithoutEffect
	group, groupCtx := errgroup.WithContext(ctx)
	// The sidecars stop first: otherwise they would have to repeat calls that were cut off.
	serverCtx, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return serveController(serverCtx, listener, o) })
	group.Go(func() error {
		defer stopServer()
		return sidecar.Run(groupCtx, o.Sidecar)
	})
	if o.HealthAddress != "" {
		group.Go(func() error { return serveHealth(groupCtx, o.HealthAddress, path) })
	}
	o.Log.WithField("endpoint", path).Info("Controller service started")
	return group.Wait()
}

func serveController(ctx context.Context, l net.Listener, o ControllerOptions) error {
	server := &controllerServer{core: &controller{
		volumes: o.Volumes, driver: o.DriverName, poll: pollInterval, wait: maxWait, clones: clonesOffered, log: o.Log,
	}}
	return serve(ctx, l, o.Log, func(s *grpc.Server) {
		csipb.RegisterIdentityServer(s, &identity{driver: o.DriverName, version: o.Version})
		csipb.RegisterControllerServer(s, server)
	})
}
