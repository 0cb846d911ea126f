package share

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
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
	source4 = netip.MustParseAddr("169.254.99.1")
	source6 = netip.MustParseAddr("fd00:6c6f:6e67:686f:726e::1")
)

const destinationPort = 2 // its offset in the header of TCP

// loopback is the name of that link as the kernel compares it.
func loopback() []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "lo")
	return name
}

// showOneSource has connections to a port of this network seem to come from one address, for as long as the network is there. Those of this
// machine itself stay as they are.
func showOneSource(port int) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "longhorn-share"})
	c.FlushTable(table) // of an earlier process of this pod
	chain := c.AddChain(&nftables.Chain{
		Name: "clients", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityNATSource,
	})
	for family, source := range map[byte]netip.Addr{unix.NFPROTO_IPV4: source4, unix.NFPROTO_IPV6: source6} {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: loopback()},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
			&expr.Immediate{Register: 1, Data: source.AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(family), RegAddrMin: 1},
		}})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("adding the rules to nftables: %w", err)
	}
	return nil
}

// recordOfClient is how Ganesha names the record of a client: an address, and the client's name with its length.
var recordOfClient = regexp.MustCompile(`^(.+?)-(\(\d+:.*)$`)

// adoptRecords gives records of clients that were seen at other addresses, by a server of an earlier release, the one that they are seen at
// now. recovery is where Ganesha keeps them.
func adoptRecords(recovery string) error {
	dirs, err := filepath.Glob(filepath.Join(recovery, recordsName, "node*"))
	if err != nil {
		return err
	}
	var failed error
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue // the link to the ones that hold
		}
		entries, err := os.ReadDir(dir)
		failed = errors.Join(failed, err)
		for _, e := range entries {
			if name, ok := adopted(e.Name()); ok && e.IsDir() {
				failed = errors.Join(failed, unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, e.Name()), unix.AT_FDCWD, filepath.Join(dir, name), unix.RENAME_NOREPLACE))
			}
		}
	}
	return failed
}

// adopted is the name of a record once its client is seen at one source; false: it is that already, or none of Ganesha's.
func adopted(record string) (string, bool) {
	parts := recordOfClient.FindStringSubmatch(record)
	if parts == nil {
		return "", false
	}
	address, err := netip.ParseAddr(parts[1])
	if err != nil || address.Unmap().IsLoopback() {
		return "", false
	}
	source := netip.AddrFrom16(source4.As16()).String() // as a socket for both families shows it
	if address.Is4() {
		source = source4.String()
	} else if !address.Is4In6() {
		source = source6.String()
	}
	return source + "-" + parts[2], parts[1] != source
}
