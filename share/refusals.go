package share

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// holdRefusals keeps this network from answering that nobody listens at a port, for as long as the network is there. A client that connects while the
// server starts anew is then not refused, after which it would wait for three seconds and more; it asks again after one (RFC 6298), and is let in.
//
// What is held back is the answer to a SYN alone (RFC 9293, 3.10.7.1: RST and ACK, with sequence number 0). A connection whose server has died is reset as
// ever, and so is one of this machine itself, whose end the probes must see at once.
func holdRefusals(port int) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "longhorn-share"})
	chain := c.AddChain(&nftables.Chain{
		Name: "refusals", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter,
	})
	const (
		sequence, flags = 4, 13 // offsets in the header of TCP
		rst, ack        = 0x04, 0x10
	)
	equal := func(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
	header := func(offset, length uint32) expr.Any {
		return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
	}
	loopback := make([]byte, unix.IFNAMSIZ)
	copy(loopback, "lo")
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: loopback},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		equal([]byte{unix.IPPROTO_TCP}),
		header(0, 2),
		equal(binaryutil.BigEndian.PutUint16(uint16(port))),
		header(flags, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{rst | ack}, Xor: []byte{0}},
		equal([]byte{rst | ack}),
		header(sequence, 4),
		equal(binary.BigEndian.AppendUint32(nil, 0)),
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("adding the rule to nftables: %w", err)
	}
	return nil
}
