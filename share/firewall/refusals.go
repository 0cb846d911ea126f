package firewall

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// The flags RST and ACK in the header of TCP.
const resetAndAck = 0x04 | 0x10

// DropRefusals has this network refuse no connection to a port: while no server listens there, who asks gets no answer. The kernel's NFS client
// asks again 1 s after a connection that was not answered, and 3 s after one that was refused; a server that is started again answers sooner.
//
// A refusal is the reset that answers a SYN: it has the sequence number 0 (RFC 9293, 3.10.7.1). The reset of a connection that was there has
// another one, and still tells a client at once that its server has ended. This machine itself is refused as always.
func DropRefusals(port int) error {
	chain := nftables.Chain{Name: "refusals", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw}
	flags := []expr.Any{
		header(tcpFlags, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{resetAndAck}, Xor: []byte{0}}, is(resetAndAck),
	}
	return setRules("longhorn-share-refusals", chain, join(
		isTo(others), isTCP(), hasPort(sourcePort, port), flags, []expr.Any{header(sequenceNumber, 4), is(0, 0, 0, 0), &expr.Verdict{Kind: expr.VerdictDrop}},
	))
}
