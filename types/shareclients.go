package types

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The ConfigMap ShareClientsConfigMap says who may mount shared volumes: under ShareClientsKey the word ShareClientsAny, or addresses and networks,
// one a line. The pod of a share has it as a directory. Earlier releases read ShareClientsKey alone, take an empty list for none, and write
// ShareClientsAny where the addresses of a node are not known: a reader must believe that word only where the reason is
// ReasonClientsAllowedBySetting, and a writer must never write an empty list (ShareClientsNobody).
const (
	ShareClientsConfigMap = "longhorn-share-clients"
	ShareClientsKey       = "clients"
	// ShareClientsReasonKey and ShareClientsMessageKey say why the list is as it is, where that needs saying.
	ShareClientsReasonKey  = "reason"
	ShareClientsMessageKey = "message"
	// ShareClientsNodesKey says which addresses of the list belong to which node: the node's name and its addresses, a node a line. The next list
	// keeps the addresses of a node whose daemon reports none any more.
	ShareClientsNodesKey = "nodes"
	// ShareClientsWaitingKey names the nodes whose clients the list does not know yet, one a line: no shared volume is published to them.
	ShareClientsWaitingKey = "waiting"
	// ShareClientsNobody is the one line of a list without clients: the share's own machine, which may connect anyway.
	ShareClientsNobody = "127.0.0.1"
	// ShareClientsDirectory is where a share's pod has the ConfigMap.
	ShareClientsDirectory = "/etc/longhorn-share"
)

// The words of SettingRWXVolumeAllowedClients. ShareClientsAny stands in the ConfigMap, too.
const (
	ShareClientsNodes = "nodes"
	ShareClientsAny   = "any"
)

// ShareClients are those that may mount shared volumes.
type ShareClients struct {
	// Any: whoever reaches the server. The rest counts for nothing then.
	Any bool
	// Nodes of the cluster, and Networks, without host bits, in order.
	Nodes    bool
	Networks []netip.Prefix
}

var shareClientEntries = EntryRule{
	Separator: ",", Pattern: "^(" + ShareClientsNodes + "|" + ShareClientsAny + "|[0-9A-Fa-f:.]+(/[0-9]{1,3})?)$",
	Says: "must be " + ShareClientsNodes + ", " + ShareClientsAny + ", addresses and networks, separated by ','; %q is none of them",
}

// ParseShareClients reads the value of SettingRWXVolumeAllowedClients: words and networks with commas between them. An error is a clause that follows
// the value.
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
				return c, fmt.Errorf(shareClientEntries.Says, word)
			}
			c.Networks = append(c.Networks, network)
		}
	}
	if c.Any && (c.Nodes || len(c.Networks) > 0) {
		return c, fmt.Errorf("must not have anything beside %s, which is all", ShareClientsAny)
	}
	c.Networks = SortShareClients(c.Networks)
	return c, nil
}

func checkShareClients(value string) error {
	_, err := ParseShareClients(value)
	return err
}

// ParseShareClient reads an address or a network (192.0.2.0/24). Host bits are dropped, and an IPv4 address within IPv6 is the IPv4 address.
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

// ShareClientsWaiting are the nodes for which a list of clients has shared volumes wait.
func ShareClientsWaiting(data map[string]string) []string {
	return strings.Fields(data[ShareClientsWaitingKey])
}

// SortShareClients returns the networks in order, each once.
func SortShareClients(networks []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(networks), func(a, b netip.Prefix) int {
		if order := a.Addr().Compare(b.Addr()); order != 0 {
			return order
		}
		return a.Bits() - b.Bits()
	})
	return slices.Compact(sorted)
}
