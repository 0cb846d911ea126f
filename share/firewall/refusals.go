package firewall

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// The flags RST and ACK in the TCP header.
const resetAndAck = 0x04 | 0x10

// DropRefusals prevents this network from refusing connections to a port: while no server listens there, a client gets
// no answer. The kernel's NFS client tries again 1 s after a connection without an answer, and 3 s after a refused one.
// A restarted server usually answers before these 3 s are over.
//
// A refusal is the reset that answers a SYN: it has the sequence number 0 (RFC 9293, 3.10.7.1). The reset of an
// existing connection has another number, and still informs a client at once that its server has exited. Connections
// from this machine itself are still refused.
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
