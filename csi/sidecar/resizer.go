package sidecar

import (
	"context"
	"errors"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	resize "github.com/kubernetes-csi/external-resizer/v2/pkg/controller"
	resizercsi "github.com/kubernetes-csi/external-resizer/v2/pkg/csi"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/resizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/informers"
)

// newResizeController handles claims that request more than their volume has; nil: the driver cannot expand volumes. It
// does not watch pods: the library needs them for drivers that refuse to expand volumes in use.
func newResizeController(ctx context.Context, o Options, factory informers.SharedInformerFactory, conn *grpc.ClientConn) (resize.ResizeController, error) {
	client := &resizeClient{end: ctx, conn: conn, driver: o.DriverName}
	r, err := resizer.NewResizerFromClient(client, callTimeout, o.Kube, o.DriverName)
	if errors.Is(err, resizer.ResizeNotSupportErr) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking the driver whether it expands volumes: %w", err)
	}
	return resize.NewResizeController(o.DriverName, r, o.Kube, resync, factory, backoff(), false, retryMax), nil
}

// resizeClient is the library's interface to the driver, over an existing connection. The contexts of the library
// do not end with the process's work. end does, and then stops the calls.
type resizeClient struct {
	end    context.Context //nolint:containedctx // see above
	conn   *grpc.ClientConn
	driver string
	// failures are by volume.
	failures repeatedTexts
}

var _ resizercsi.Client = (*resizeClient)(nil)

func (c *resizeClient) can(ctx context.Context, what csipb.ControllerServiceCapability_RPC_Type) (bool, error) {
	ctx, cancel := endWith(ctx, c.end)
	defer cancel()
	has, err := rpc.GetControllerCapabilities(ctx, c.conn)
	return has[what], err
}

// GetDriverName implements the library's Client.
func (c *resizeClient) GetDriverName(context.Context) (string, error) { return c.driver, nil }

// SupportsPluginControllerService implements the library's Client: this process serves it.
func (c *resizeClient) SupportsPluginControllerService(context.Context) (bool, error) {
	return true, nil
}

// SupportsControllerResize implements the library's Client.
func (c *resizeClient) SupportsControllerResize(ctx context.Context) (bool, error) {
	return c.can(ctx, csipb.ControllerServiceCapability_RPC_EXPAND_VOLUME)
}

// SupportsNodeResize implements the library's Client. It is called only if the controller service expands nothing. In
// that case no file system has a reason to grow.
func (c *resizeClient) SupportsNodeResize(context.Context) (bool, error) { return false, nil }

// SupportsControllerModify implements the library's Client.
func (c *resizeClient) SupportsControllerModify(context.Context) (bool, error) { return false, nil }

// SupportsControllerSingleNodeMultiWriter implements the library's Client.
func (c *resizeClient) SupportsControllerSingleNodeMultiWriter(ctx context.Context) (bool, error) {
	return c.can(ctx, csipb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
}

// Expand implements the library's Client.
func (c *resizeClient) Expand(
	ctx context.Context, volume string, requiredBytes int64, secrets map[string]string, capability *csipb.VolumeCapability,
) (int64, bool, error) {
	ctx, cancel := endWith(ctx, c.end)
	defer cancel()
	response, err := csipb.NewControllerClient(c.conn).ControllerExpandVolume(ctx, &csipb.ControllerExpandVolumeRequest{
		VolumeId: volume, CapacityRange: &csipb.CapacityRange{RequiredBytes: requiredBytes},
		Secrets: secrets, VolumeCapability: capability,
	})
	if err != nil {
		return 0, false, &callError{status: status.Convert(err), text: c.failures.text(volume, messageOf(err))}
	}
	c.failures.forget(volume)
	return response.GetCapacityBytes(), response.GetNodeExpansionRequired(), nil
}

// CloseConnection implements the library's Client. It does nothing, because the client does not own the connection.
func (c *resizeClient) CloseConnection() {}

// Modify implements the library's Client.
func (c *resizeClient) Modify(context.Context, string, map[string]string, map[string]string) error {
	return errors.New("BUG: volumes have no attributes class")
}
