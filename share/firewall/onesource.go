package firewall

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// After a restart, Ganesha knows a client by its name and by its source address. But the address of a client changes
// when the share moves. To reach a Service on another node, a node uses one of its own addresses. To reach a Service on
// the node itself, it uses the address of its bridge. It may also be the reverse. So the server sees one source address
// for all clients, to which nothing is sent. Only the name distinguishes clients, as NFSv4 specifies (RFC 8881, 2.4).
//
//	client 10.0.0.7 ─┐                                   ┌─ "169.254.99.1-(20:Linux NFSv4.2 node-1)"
//	client 10.1.3.1 ─┴─► the pod's network: source NAT ──┴─ whatever node the share is on
var (
	Source4 = netip.MustParseAddr("169.254.99.1")
	Source6 = netip.MustParseAddr("fd00:6c6f:6e67:686f:726e::1")
)

// ShowOneSource makes connections to a port of this network seem to come from one address, as long as the network
// exists. Connections from this machine itself are not changed.
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
