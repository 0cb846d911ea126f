package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// resolverFile is the resolver configuration that the kubelet writes for this pod.
const resolverFile = "/etc/resolv.conf"

// serviceLookup limits the question for one address.
const serviceLookup = 3 * time.Second

var errNoServiceDomain = errors.New("the pod's resolver configuration does not search the Services of its namespace")

// lookUpService returns a function that asks the cluster's DNS for the address of a Service in this pod's namespace.
// The plugin has no account at the API server, and does not need one for that. The name is absolute, so no other domain
// that the resolver searches can answer for a Service that does not exist.
func lookUpService(ctx context.Context, file string) func(name string) (netip.Addr, error) {
	return func(name string) (netip.Addr, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return netip.Addr{}, err
		}
		domain, ok := serviceDomain(string(text))
		if !ok {
			return netip.Addr{}, errNoServiceDomain
		}
		ctx, cancel := context.WithTimeout(ctx, serviceLookup)
		defer cancel()
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name+"."+domain+".")
		if err != nil {
			return netip.Addr{}, fmt.Errorf("look up the Service of the share: %w", err)
		}
		if len(found) != 1 {
			return netip.Addr{}, fmt.Errorf("look up the Service of the share: it has %d addresses instead of one", len(found))
		}
		return found[0].Unmap(), nil
	}
}

// serviceDomain is the domain of the Services in a pod's namespace: NAMESPACE.svc.CLUSTER. The kubelet configures the
// resolver to search it first.
func serviceDomain(resolver string) (string, bool) {
	for line := range strings.Lines(resolver) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "search" {
			continue
		}
		domain := strings.TrimSuffix(words[1], ".")
		if labels := strings.Split(domain, "."); len(labels) > 2 && labels[1] == "svc" {
			return domain, true
		}
	}
	return "", false
}
