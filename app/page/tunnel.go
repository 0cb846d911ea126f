package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// NewTunnel returns a Tunnel to pods of a namespace through the API server, as kubectl port-forward has one: over a
// WebSocket, or over SPDY if the API server or a proxy before it has no WebSockets for this.
func NewTunnel(kube kubernetes.Interface, config *rest.Config, namespace string) Tunnel {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // the connection stays open
	return func(ctx context.Context, pod string, port int, ready func(int)) error {
		url := kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
		overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
		if err != nil {
			return err
		}
		transport, upgrader, err := spdy.RoundTripperFor(config)
		if err != nil {
			return err
		}
		overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
		return forward(ctx, portforward.NewFallbackDialerForStreaming(overWebSocket, overSPDY, func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		}), port, ready)
	}
}

// forward listens on the loopback interface, and forwards each connection through one connection of a dialer.
func forward(ctx context.Context, dialer httpstream.Dialer, port int, ready func(int)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening := make(chan struct{})
	ports := []string{fmt.Sprintf("%d:%d", port, types.APIPort)}
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{loopback}, ports, listening, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() { result <- forwarder.ForwardPorts() }()
	select {
	case err := <-result:
		return err
	case <-listening:
	}
	chosen, err := forwarder.GetPorts()
	if err != nil {
		cancel()
		return errors.Join(err, <-result)
	}
	ready(int(chosen[0].Local))
	return <-result
}
