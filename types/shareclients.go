package types

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The ConfigMap ShareClientsConfigMap lists the clients that may mount shared volumes. Under ShareClientsKey it has
// the word ShareClientsAny, or addresses and networks, one per line. The pod of a share mounts it as a directory.
// Earlier releases read only ShareClientsKey and treat an empty list as missing. They write ShareClientsAny if the
// addresses of a node are unknown. So a reader must trust that word only if the reason is
// ReasonClientsAllowedBySetting, and a writer must never write an empty list (ShareClientsNobody).
const (
	ShareClientsConfigMap = "longhorn-share-clients"
	ShareClientsKey       = "clients"
	// ShareClientsReasonKey and ShareClientsMessageKey explain the list where an explanation is needed.
	ShareClientsReasonKey  = "reason"
	ShareClientsMessageKey = "message"
	// ShareClientsNodesKey says which addresses of the list belong to which node. Each line has a node's name and its
	// addresses. The next list keeps the addresses of a node whose daemon no longer reports any.
	ShareClientsNodesKey = "nodes"
	// ShareClientsWaitingKey names the nodes whose clients the list does not contain yet, one per line. No shared
	// volume is published to these nodes.
	ShareClientsWaitingKey = "waiting"
	// ShareClientsNobody is the only line of a list without clients: the share's own machine, which may always
	// connect.
	ShareClientsNobody = "127.0.0.1"
	// ShareClientsDirectory is the mount path of the ConfigMap in a share's pod.
	ShareClientsDirectory = "/etc/longhorn-share"
)

// The words of the setting rwx-volume-allowed-clients. The ConfigMap can contain ShareClientsAny, too.
const (
	ShareClientsNodes = "nodes"
	ShareClientsAny   = "any"
)

// ShareClients describes the clients that may mount shared volumes.
type ShareClients struct {
	// Any: every client that reaches the server. The other fields are then ignored.
	Any bool
	// Nodes: the nodes of the cluster. Networks have no host bits and are sorted.
	Nodes    bool
	Networks []netip.Prefix
}

// ShareClientEntries is the rule of the entries of ShareClients.
var ShareClientEntries = EntryRule{
	Separator: ",", Pattern: "^(" + ShareClientsNodes + "|" + ShareClientsAny + "|[0-9A-Fa-f:.]+(/[0-9]{1,3})?)$",
	Says: "must be " + ShareClientsNodes + ", " + ShareClientsAny + ", addresses and networks, separated by ','; %q is none of them",
}

// ParseShareClients reads the value of the setting rwx-volume-allowed-clients: words and networks, separated by commas.
// An error is a clause that follows the value.
func ParseShareClients(value string) (ShareClients, error) {
	var c ShareClients
	for _, word := range strings.Split(value, ",") {
		switch word = strings.TrimSpace(word); word {
		case ShareClientsAny:
			c.Any = true
		case ShareClientsNodes:
			c.Nodes = true
		default:
			network, err := ParseShareClient(word)
			if err != nil {
				return c, fmt.Errorf(ShareClientEntries.Says, word)
			}
			c.Networks = append(c.Networks, network)
		}
	}
	if c.Any && (c.Nodes || len(c.Networks) > 0) {
		return c, fmt.Errorf("must contain nothing else if it contains %s", ShareClientsAny)
	}
	c.Networks = SortShareClients(c.Networks)
	return c, nil
}

// CheckShareClients checks a value for ParseShareClients.
func CheckShareClients(value string) error {
	_, err := ParseShareClients(value)
	return err
}

// ParseShareClient parses an address or a network (192.0.2.0/24). It drops host bits, and converts an IPv4 address
// within IPv6 to the IPv4 address.
func ParseShareClient(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil || network.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a network", text)
	}
	return network.Masked(), nil
}

// ShareClientsWaiting returns the nodes to which no shared volume is published until the list knows their clients.
func ShareClientsWaiting(data map[string]string) []string {
	return strings.Fields(data[ShareClientsWaitingKey])
}

// SortShareClients returns the networks sorted and without duplicates.
func SortShareClients(networks []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(networks), func(a, b netip.Prefix) int {
		if order := a.Addr().Compare(b.Addr()); order != 0 {
			return order
		}
		return a.Bits() - b.Bits()
	})
	return slices.Compact(sorted)
}
