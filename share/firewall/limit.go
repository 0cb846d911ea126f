package firewall

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// clientsTable is a separate table. The rule that shows one source (onesource.go) comes later, so that this one sees
// the real addresses of clients.
const clientsTable = "longhorn-share-clients"

// limitClients allows only these networks, and this machine, to send to a port of this network, also over established
// connections; nil: all may. It replaces its former rules in one step.
func limitClients(port int, networks []netip.Prefix) error {
	// All goes into one message, which the socket's buffer must hold. A rule for a network takes the most space.
	const perNetwork, rules = 512, 64 << 10
	c, err := nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetWriteBuffer(rules + perNetwork*len(networks)) }))
	if err != nil {
		return fmt.Errorf("connecting to nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: clientsTable}
	c.AddTable(table) // so that there is a table to delete
	c.DelTable(table)
	if networks != nil {
		if err := addClientRules(c, c.AddTable(table), port, networks); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("limiting the clients with nftables: %w", err)
	}
	return nil
}

// addClientRules adds the rules. Its chain comes before the chain of ShowOneSource in the same hook, which has the
// priority of source NAT.
func addClientRules(c *nftables.Conn, table *nftables.Table, port int, networks []netip.Prefix) error {
	chain := c.AddChain(&nftables.Chain{
		Name: "clients", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	rule := func(exprs ...expr.Any) { c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs}) }
	accept, drop := &expr.Verdict{Kind: expr.VerdictAccept}, &expr.Verdict{Kind: expr.VerdictDrop}
	rule(append(isFrom(itself), accept)...)
	for _, f := range []struct {
		family byte
		kind   nftables.SetDatatype
		offset uint32 // of the source address in the header
		bytes  uint32
	}{
		{unix.NFPROTO_IPV4, nftables.TypeIPAddr, 12, 4},
		{unix.NFPROTO_IPV6, nftables.TypeIP6Addr, 8, 16},
	} {
		source := func(more ...expr.Any) []expr.Any {
			address := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.bytes}
			return join(isFamily(f.family), []expr.Any{address}, more)
		}
		hosts := &nftables.Set{Table: table, Name: fmt.Sprintf("hosts%d", f.family), KeyType: f.kind}
		if err := c.AddSet(hosts, nil); err != nil {
			return err
		}
		rule(source(&expr.Lookup{SourceRegister: 1, SetName: hosts.Name, SetID: hosts.ID}, accept)...)
		var elements []nftables.SetElement
		for _, n := range networks {
			address := n.Addr().AsSlice()
			switch {
			case len(address) != int(f.bytes):
			case n.IsSingleIP():
				elements = append(elements, nftables.SetElement{Key: address})
			default:
				rule(source(&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.bytes, Mask: maskOf(n), Xor: make([]byte, f.bytes)},
					is(address...), accept)...)
			}
		}
		if err := addElements(c, hosts, elements); err != nil {
			return err
		}
	}
	rule(join(isTCP(), hasPort(destinationPort, port), []expr.Any{drop})...)
	return nil
}

// addElements adds a few elements at a time: one netlink message holds 64 KiB of them.
func addElements(c *nftables.Conn, set *nftables.Set, elements []nftables.SetElement) error {
	const batch = 500
	for len(elements) > 0 {
		n := min(batch, len(elements))
		if err := c.SetAddElements(set, elements[:n]); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

// maskOf has the bits set that are in a network's prefix.
func maskOf(n netip.Prefix) []byte {
	mask := make([]byte, n.Addr().BitLen()/8)
	for i := range n.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}
