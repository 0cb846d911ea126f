package firewall

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Ganesha knows a client after a restart by its name and by the address that it came from. But the address of one client changes when the
// share moves: a node that reaches a Service on another node does so with one of its addresses, and on the node itself with that of
// its bridge, or the reverse. So the server is shown one source for all, which nothing is sent to; the name alone tells clients apart, as
// NFSv4 has it (RFC 8881, 2.4).
//
//	client 10.0.0.7 ─┐                                   ┌─ "169.254.99.1-(20:Linux NFSv4.2 node-1)"
//	client 10.1.3.1 ─┴─► the pod's network: source NAT ──┴─ whatever node the share is on
var (
	Source4 = netip.MustParseAddr("169.254.99.1")
	Source6 = netip.MustParseAddr("fd00:6c6f:6e67:686f:726e::1")
)

// ShowOneSource has connections to a port of this network seem to come from one address, for as long as the network is there. Those of this
// machine itself stay as they are.
func ShowOneSource(port int) error {
	chain := nftables.Chain{Name: "clients", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityNATSource}
	var rules [][]expr.Any
	for _, f := range []struct {
		family byte
		source netip.Addr
	}{{unix.NFPROTO_IPV4, Source4}, {unix.NFPROTO_IPV6, Source6}} {
		rules = append(rules, join(isFamily(f.family), isFrom(others), isTCP(), hasPort(destinationPort, port), []expr.Any{
			&expr.Immediate{Register: 1, Data: f.source.AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(f.family), RegAddrMin: 1},
		}))
	}
	return setRules("longhorn-share", chain, rules...)
}
