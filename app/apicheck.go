package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// apiCheckTimeout is how long one request to an API server may take.
const apiCheckTimeout = 2 * time.Second

// newAPICheck returns a function for an apigate.Gate that checks whether an API server answers. Any answer counts, also
// a refusal. An exception is the answer of a proxy that has no server behind it (502 to 504, RFC 9110 section 15.6).
// Each check has a connection of its own.
func newAPICheck(config *rest.Config) (func(context.Context) error, error) {
	c := rest.AnonymousClientConfig(config)
	// This also prevents that the transport is shared with other clients.
	c.Dial = (&net.Dialer{Timeout: apiCheckTimeout}).DialContext
	c.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(c)
	if err != nil {
		return nil, fmt.Errorf("prepare the check of the Kubernetes API server: %w", err)
	}
	client := &http.Client{Transport: transport, Timeout: apiCheckTimeout}
	url, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, fmt.Errorf("prepare the check of the Kubernetes API server: %w", err)
	}
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url.JoinPath("version").String(), nil)
		if err != nil {
			return err
		}
		r.Close = true
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		_ = response.Body.Close() // its content does not matter
		if response.StatusCode >= http.StatusBadGateway && response.StatusCode <= http.StatusGatewayTimeout {
			return fmt.Errorf("%s answered %s", url.Host, response.Status)
		}
		return nil
	}, nil
}
