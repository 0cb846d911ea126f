package share

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// clientsRound is how often the list of clients is read. The kubelet brings a change to the pod within a minute or two.
const clientsRound = 2 * time.Second

// clientsTable is of its own: the rule that shows one source (onesource.go) comes later, so that this one sees where clients really are.
const clientsTable = "longhorn-share-clients"

// doorkeeper keeps strangers from the NFS port of this network, by the list in a file (types.ShareClientsConfigMap) that may change at any time.
//
//	the file                                what reaches the port
//	has addresses and networks              what these send, and this machine; others get no answer
//	says any, and that a person set it      what anyone sends
//	says any for another reason             as before: a leader of an earlier release opens all shares while it does not know one node's addresses
//	is not a list, or is not there          as before
//
// As before is this machine alone where there was no list before: a stranger who is let in reads all files, and may change them.
//
// The list applies to established connections, too. The same rule drops all further packets of clients that are no longer listed, in the
// same step, so no connection can come between, and it needs nothing of the kernel but the rule (SOCK_DESTROY needs CONFIG_INET_DIAG_DESTROY, and
// shows the server's sockets with the one source of all clients). The server drops the state of such a client when its lease ends.
type doorkeeper struct {
	file   string
	limit  func([]netip.Prefix) error
	told   func(error) // what the kernel answered last, nil: it limits clients as asked; called at each reading; may be nil
	log    *logrus.Entry
	now    func() time.Duration
	read   time.Duration // when it was read last; 0: never
	text   string        // the list that was read last
	closed bool          // to all clients, where there was no list yet
	kernel error         // what limit returned last
	failed string        // what was told last; "": nothing is wrong
}

func newDoorkeeper(o Options) *doorkeeper {
	return &doorkeeper{
		file: o.ClientsFile, log: o.Log, now: sinceBoot,
		limit: func(networks []netip.Prefix) error { return limitClients(o.NFSPort, networks) },
	}
}

// look reads the list if that is due, and has the kernel follow it. What cannot be done is told once, and tried again.
func (d *doorkeeper) look() {
	now := d.now()
	if d.read != 0 && now-d.read < clientsRound {
		return
	}
	first := d.read == 0
	d.read = now
	text, err := readClients(d.file)
	if err == nil && (first || d.failed != "" || text != d.text) {
		err = d.follow(text)
	}
	if err != nil && d.text == "" && !d.closed {
		refusal := d.ask([]netip.Prefix{})
		d.closed = refusal == nil
		err = errors.Join(err, refusal)
	}
	if d.told != nil {
		d.told(d.kernel)
	}
	switch {
	case err == nil:
		d.failed = ""
	case err.Error() != d.failed:
		d.failed = err.Error()
		d.log.WithError(err).Warn("Who may mount the share is as before; where no list was there before, no client may")
	}
}

// ask has the kernel limit the clients, and keeps its answer.
func (d *doorkeeper) ask(networks []netip.Prefix) error {
	d.kernel = d.limit(networks)
	return d.kernel
}

// readClients reads the list. ShareClientsAny is one only where the file beside it says that a person wants it.
func readClients(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(text)) != types.ShareClientsAny {
		return string(text), err
	}
	reason, err := os.ReadFile(filepath.Join(filepath.Dir(file), types.ShareClientsReasonKey))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if strings.TrimSpace(string(reason)) != types.ReasonClientsAllowedBySetting {
		return "", fmt.Errorf("file %s lets any client mount, and not because a setting says so: %q", file, reason)
	}
	return string(text), nil
}

func (d *doorkeeper) follow(text string) error {
	networks, err := parseClients(text)
	if err != nil {
		return fmt.Errorf("file %s: %w", d.file, err)
	}
	if err := d.ask(networks); err != nil {
		return err
	}
	d.text = text
	if networks == nil {
		d.log.Info("Any client may mount the share")
	} else {
		d.log.WithField("clients", len(networks)).Info("Only listed clients may mount the share")
	}
	return nil
}

// parseClients reads a list: nil for types.ShareClientsAny, else networks, one a line. An empty list is an error.
func parseClients(text string) ([]netip.Prefix, error) {
	words := strings.Fields(text)
	if len(words) == 1 && words[0] == types.ShareClientsAny {
		return nil, nil
	}
	var networks []netip.Prefix
	for _, word := range words {
		network, err := types.ParseShareClient(word)
		if err != nil {
			return nil, err
		}
		networks = append(networks, network)
	}
	if len(networks) == 0 {
		return nil, errors.New("the list is empty")
	}
	return networks, nil
}

// limitClients lets only these networks, and this machine, send to a port of this network, also over connections that are established; nil: any
// may. It replaces what it did before in one step.
func limitClients(port int, networks []netip.Prefix) error {
	// All goes in one message, which the socket's buffer must hold: a rule for a network takes the most.
	const perNetwork, rules = 512, 64 << 10
	c, err := nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetWriteBuffer(rules + perNetwork*len(networks)) }))
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: clientsTable}
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	if networks != nil {
		if err := addDoor(c, c.AddTable(table), port, networks); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("limiting the clients by nftables: %w", err)
	}
	return nil
}

// addDoor adds the rules. Its chain comes before that of showOneSource in the same hook, which has the priority of source NAT.
func addDoor(c *nftables.Conn, table *nftables.Table, port int, networks []netip.Prefix) error {
	chain := c.AddChain(&nftables.Chain{
		Name: "clients", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	rule := func(exprs ...expr.Any) { c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs}) }
	accept, drop := &expr.Verdict{Kind: expr.VerdictAccept}, &expr.Verdict{Kind: expr.VerdictDrop}
	toPort := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
	}
	rule(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: loopback()}, accept)
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
			return append([]expr.Any{
				&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.family}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.bytes},
			}, more...)
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
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address}, accept)...)
			}
		}
		if err := addElements(c, hosts, elements); err != nil {
			return err
		}
	}
	rule(append(toPort, drop)...)
	return nil
}

// addElements adds a few at a time: one message of netlink takes 64 KiB of them.
func addElements(c *nftables.Conn, set *nftables.Set, elements []nftables.SetElement) error {
	const few = 500
	for len(elements) > 0 {
		n := min(few, len(elements))
		if err := c.SetAddElements(set, elements[:n]); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

// maskOf has the bits of a network's prefix set.
func maskOf(n netip.Prefix) []byte {
	mask := make([]byte, n.Addr().BitLen()/8)
	for i := range n.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}
