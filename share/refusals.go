package share

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets in the header of TCP.
const (
	sourcePort     = 0
	sequenceNumber = 4
	tcpFlags       = 13
)

// The flags RST and ACK in the header of TCP.
const resetAndAck = 0x04 | 0x10

// dropRefusals has this network refuse no connection to a port: while no server listens there, who asks gets no answer. The kernel's NFS client
// asks again 1 s after a connection that was not answered, and 3 s after one that was refused; a server that is started again answers sooner.
//
// A refusal is the reset that answers a SYN: it has the sequence number 0 (RFC 9293, 3.10.7.1). The reset of a connection that was there has
// another one, and still tells a client at once that its server has ended. This machine itself is refused as always.
func dropRefusals(port int) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "longhorn-share-refusals"})
	c.FlushTable(table) // of an earlier process of this pod
	chain := c.AddChain(&nftables.Chain{
		Name: "refusals", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw,
	})
	header := func(offset, length uint32) expr.Any {
		return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
	}
	is := func(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: loopback()},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, is(unix.IPPROTO_TCP),
		header(sourcePort, 2), is(binaryutil.BigEndian.PutUint16(uint16(port))...),
		header(tcpFlags, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{resetAndAck}, Xor: []byte{0}}, is(resetAndAck),
		header(sequenceNumber, 4), is(0, 0, 0, 0),
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("adding the rules to nftables: %w", err)
	}
	return nil
}
