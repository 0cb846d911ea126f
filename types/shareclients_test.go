package types

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseShareClients(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, c := range []struct {
		value string
		want  ShareClients
		err   string
	}{
		{"nodes", ShareClients{Nodes: true}, ""},
		{"any", ShareClients{Any: true}, ""},
		{"fd00::1/64, 192.0.2.7 ,nodes,10.1.2.3/8,192.0.2.7", ShareClients{Nodes: true, Networks: []netip.Prefix{prefix("10.0.0.0/8"), prefix("192.0.2.7/32"), prefix("fd00::/64")}}, ""},
		{"::ffff:192.0.2.7", ShareClients{Networks: []netip.Prefix{prefix("192.0.2.7/32")}}, ""},
		{"any,nodes", ShareClients{}, "must contain nothing else if it contains any"},
		{"192.0.2.7,any", ShareClients{}, "must contain nothing else if it contains any"},
		{"nodes,", ShareClients{}, `must be nodes, any, addresses and networks, separated by ','; "" is none of them`},
		{"node-1", ShareClients{}, `must be nodes, any, addresses and networks, separated by ','; "node-1" is none of them`},
		{"10.0.0.0/33", ShareClients{}, `must be nodes, any, addresses and networks, separated by ','; "10.0.0.0/33" is none of them`},
		{"::ffff:192.0.2.0/120", ShareClients{}, `must be nodes, any, addresses and networks, separated by ','; "::ffff:192.0.2.0/120" is none of them`},
	} {
		t.Run(c.value, func(t *testing.T) {
			got, err := ParseShareClients(c.value)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				require.ErrorContains(t, CheckShareClients(c.value), c.err)
				return
			}
			require.NoError(t, err)
			require.NoError(t, CheckShareClients(c.value))
			assert.Equal(t, c.want, got)
		})
	}
}
