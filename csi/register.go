package csi

import (
	"context"
	"path/filepath"

	"github.com/sirupsen/logrus"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrationSocket is where the kubelet finds the driver. The kubelet watches that directory. It registers the driver
// when the socket appears, and when the kubelet itself starts and lists the directory. So after a restart of either the
// driver does nothing here. The kubelet unregisters the driver when the socket disappears.
func registrationSocket(kubeletDir, driver string) string {
	return filepath.Join(kubeletDir, "plugins_registry", driver+"-reg.sock")
}

// supportedVersions are the CSI versions that the kubelet sees; it requires 1.x.
var supportedVersions = []string{"1.0.0"}

// registrationServer answers the kubelet's questions on that socket.
type registrationServer struct {
	registration.UnimplementedRegistrationServer
	driver string
	// endpoint is the path of the CSI socket as the kubelet sees it.
	endpoint string
	log      *logrus.Entry
}

// GetInfo says what to register.
func (r *registrationServer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.driver, Endpoint: r.endpoint, SupportedVersions: supportedVersions,
	}, nil
}

// NotifyRegistrationStatus receives the result from the kubelet. After a failure the kubelet tries again without help,
// with growing pauses, while the socket exists. So the driver does not touch the socket.
func (r *registrationServer) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.log.Info("The kubelet has registered the driver")
	} else {
		r.log.WithField("reason", s.GetError()).Error("The kubelet could not register the driver and will try again")
	}
	return &registration.RegistrationStatusResponse{}, nil
}
