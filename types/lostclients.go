package types

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
)

const (
	// LostClientsEnv is the variable of a share manager's pod that has a LostClients. It is no argument, because a pod whose image is of an earlier
	// release must start with it. Images of an earlier release know another variable, which nothing sets, so they wait for all clients.
	LostClientsEnv = "LONGHORN_LOST_NODES"
	// PodNodeEnv is the variable of a share manager's pod that has the name of its node. It is there if LostClientsEnv is.
	PodNodeEnv = "LONGHORN_POD_NODE"
)

// Bounds of a LostClients. A server that waits for a client too many only loses time.
const (
	MaxLostNodes     = 16
	MaxLostAddresses = 8
	MaxControls      = 3
)

// LostClients are the NFS clients of nodes that are down, so that a new server of a share need not wait for them. The list is made with the server's
// pod and used some seconds later, so the pod asks each node once more.
type LostClients struct {
	// After is the generation of the engine that served the volume when the leader saw these nodes down. The list is about the server of that engine
	// alone.
	After int64      `json:"after"`
	Nodes []LostNode `json:"nodes"`
	// Controls are other nodes that are up. If none of them answers, silence of Nodes says nothing.
	Controls []Control `json:"controls"`
}

// LostNode is a node that is down.
type LostNode struct {
	// ClientID is the identifier of its NFS client (HasNFSClientID).
	ClientID string `json:"clientID"`
	// Addresses are where something on it answers if it lives (LifeAddresses), as IP:port.
	Addresses []string `json:"addresses"`
}

// Control is where a node that is up answers, as IP:port.
type Control struct {
	Node    string `json:"node"`
	Address string `json:"address"`
}

// String is the text of a list that is valid; "" if no client is lost.
func (l LostClients) String() string {
	if len(l.Nodes) == 0 || l.check() != nil {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic("BUG: a list of lost clients cannot be encoded: " + err.Error())
	}
	return string(text)
}

// ParseLostClients reads what String writes. What it does not know is an error: a later release may have added a condition.
func ParseLostClients(text string) (LostClients, error) {
	var l LostClients
	if text == "" {
		return l, nil
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return LostClients{}, fmt.Errorf("reading the list of lost clients: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return LostClients{}, fmt.Errorf("the list of lost clients has a rest")
	}
	if err := l.check(); err != nil {
		return LostClients{}, fmt.Errorf("the list of lost clients: %w", err)
	}
	return l, nil
}

func (l LostClients) check() error {
	switch {
	case l.After < 1:
		return fmt.Errorf("generation %d must be at least 1", l.After)
	case len(l.Nodes) < 1 || len(l.Nodes) > MaxLostNodes:
		return fmt.Errorf("%d nodes: must be from 1 to %d", len(l.Nodes), MaxLostNodes)
	case len(l.Controls) < 1 || len(l.Controls) > MaxControls:
		return fmt.Errorf("%d other nodes: must be from 1 to %d", len(l.Controls), MaxControls)
	}
	seen := map[string]bool{}
	for _, n := range l.Nodes {
		switch {
		case !IsNFSClientID(n.ClientID):
			return fmt.Errorf("%q must be the identifier of an NFS client", n.ClientID)
		case seen[n.ClientID]:
			return fmt.Errorf("%q is there twice", n.ClientID)
		case len(n.Addresses) < 1 || len(n.Addresses) > MaxLostAddresses || slices.ContainsFunc(n.Addresses, isNoAddressPort):
			return fmt.Errorf("%q must have from 1 to %d addresses with a port: %q", n.ClientID, MaxLostAddresses, n.Addresses)
		}
		seen[n.ClientID] = true
	}
	for _, c := range l.Controls {
		if c.Node == "" || isNoAddressPort(c.Address) {
			return fmt.Errorf("node %q at %q must have a name, and an address with a port", c.Node, c.Address)
		}
	}
	return nil
}

func isNoAddressPort(text string) bool {
	a, err := netip.ParseAddrPort(text)
	return err != nil || a.Port() == 0
}

// IDs are the identifiers of all clients in the list.
func (l LostClients) IDs() (ids []string) {
	for _, n := range l.Nodes {
		ids = append(ids, n.ClientID)
	}
	return ids
}

// Of returns the identifier in the list that a client of that name has.
func (l LostClients) Of(client string) (id string, ok bool) {
	for _, n := range l.Nodes {
		if HasNFSClientID(client, n.ClientID) {
			return n.ClientID, true
		}
	}
	return "", false
}
