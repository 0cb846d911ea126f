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
	// LostClientsEnv is the environment variable of a share manager's pod that has a LostClients. It is not an
	// argument, because a pod whose image is of an earlier release must start with it. Images of an earlier release
	// read another variable, which no component sets any longer. So they wait for all clients.
	LostClientsEnv = "LONGHORN_LOST_NODES"
	// PodNodeEnv is the environment variable with the name of the pod's node. It is set if LostClientsEnv is set.
	PodNodeEnv = "LONGHORN_POD_NODE"
)

// Bounds of a LostClients. If the list has too few clients, the server only waits longer than necessary.
const (
	MaxLostNodes     = 16
	MaxLostAddresses = 8
	MaxControls      = 3
)

// LostClients are the NFS clients of nodes that are down. A new server of a share need not wait for them. The list is
// created with the server's pod and used some seconds later, so the pod asks each node once more.
type LostClients struct {
	// After is the generation of the engine that served the volume when the leader saw that these nodes were down.
	// The list applies only to the server of that engine.
	After int64      `json:"after"`
	Nodes []LostNode `json:"nodes"`
	// Controls are other nodes that are up. If none of them answers, the silence of Nodes proves nothing.
	Controls []Control `json:"controls"`
}

// LostNode is a node that is down.
type LostNode struct {
	// ClientID is the identifier of its NFS client (HasNFSClientID).
	ClientID string `json:"clientID"`
	// Addresses answer if the node is alive (LifeAddresses), as IP:port.
	Addresses []string `json:"addresses"`
}

// Control is the address of a node that is up, as IP:port.
type Control struct {
	Node    string `json:"node"`
	Address string `json:"address"`
}

// String returns the text of a valid list; "" if no client is lost or the list is invalid.
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

// ParseLostClients reads the output of String. An unknown field is an error, because a later release may have added a
// condition.
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

// IDs returns the identifiers of all clients in the list.
func (l LostClients) IDs() (ids []string) {
	for _, n := range l.Nodes {
		ids = append(ids, n.ClientID)
	}
	return ids
}

// Of returns the identifier in the list that matches the name of a client.
func (l LostClients) Of(client string) (id string, ok bool) {
	for _, n := range l.Nodes {
		if HasNFSClientID(client, n.ClientID) {
			return n.ClientID, true
		}
	}
	return "", false
}
