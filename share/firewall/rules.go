package firewall

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets in the TCP header (RFC 9293, 3.1).
const (
	sourcePort      = 0
	destinationPort = 2
	sequenceNumber  = 4
	tcpFlags        = 13
)

// setRules creates a chain in a table of this network that has exactly these rules. It replaces the rules of an earlier
// process of this pod in the same step.
func setRules(table string, chain nftables.Chain, rules ...[]expr.Any) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("connecting to nftables: %w", err)
	}
	chain.Table = c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: table})
	c.FlushTable(chain.Table)
	added := c.AddChain(&chain)
	for _, exprs := range rules {
		c.AddRule(&nftables.Rule{Table: chain.Table, Chain: added, Exprs: exprs})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("adding the rules to nftables: %w", err)
	}
	return nil
}

// join combines conditions and actions into one rule.
func join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// is compares the last loaded value.
func is(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// header loads a part of the TCP header.
func header(offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
}

// isFamily matches packets of IPv4 (unix.NFPROTO_IPV4) or IPv6 (unix.NFPROTO_IPV6).
func isFamily(family byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, is(family)}
}

// isTCP matches TCP packets.
func isTCP() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, is(unix.IPPROTO_TCP)}
}

// hasPort matches the port at an offset of the header.
func hasPort(offset uint32, port int) []expr.Any {
	return []expr.Any{header(offset, 2), is(binaryutil.BigEndian.PutUint16(uint16(port))...)}
}

// side is this machine or all others.
type side expr.CmpOp

const (
	itself = side(expr.CmpOpEq)
	others = side(expr.CmpOpNeq)
)

// isFrom matches packets that come from a side, and isTo those that go to it.
func isFrom(s side) []expr.Any { return byLink(expr.MetaKeyIIFNAME, s) }
func isTo(s side) []expr.Any   { return byLink(expr.MetaKeyOIFNAME, s) }

// byLink compares the link of a packet with this machine's loopback link, by the kernel's name for it.
func byLink(key expr.MetaKey, s side) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "lo")
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOp(s), Register: 1, Data: name}}
}
