package types

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// LostClientsEnv is the variable of a share manager's pod that has a LostClients. It is no argument, for a pod whose image is of an earlier release
// must start with it.
const LostClientsEnv = "LONGHORN_LOST_CLIENTS"

// maxLostClients bounds what a pod is told: a server that waits for a client too many loses time alone.
const maxLostClients = 1000

// LostClients are the NFS clients of nodes that are down, so that a new server of a share need not wait for them.
//
//	7/4c4c4544-0047-3510-8057-b7c04f345831,other
type LostClients struct {
	// After is the generation of the engine that served the volume when the leader saw these nodes down. The list is about the server of that engine
	// alone: a node that has returned since may be a client of a later server.
	After int64
	// IDs are the identifiers of the nodes' NFS clients (HasNFSClientID).
	IDs []string
}

// String is the text of a list; "" where no client is lost.
func (l LostClients) String() string {
	if len(l.IDs) == 0 || l.After < 1 {
		return ""
	}
	ids := slices.Sorted(slices.Values(l.IDs))
	return fmt.Sprintf("%d/%s", l.After, strings.Join(ids[:min(len(ids), maxLostClients)], ","))
}

// ParseLostClients reads what String writes. An identifier may have a comma in it, then it has no match.
func ParseLostClients(text string) (LostClients, error) {
	if text == "" {
		return LostClients{}, nil
	}
	number, list, _ := strings.Cut(text, "/")
	after, err := strconv.ParseInt(number, 10, 64)
	if err != nil || after < 1 {
		return LostClients{}, fmt.Errorf("%q must begin with the generation of an engine and a slash", text)
	}
	l := LostClients{After: after}
	for id := range strings.SplitSeq(list, ",") {
		if !IsNFSClientID(id) {
			return LostClients{}, fmt.Errorf("%q: %q must be the identifier of an NFS client", text, id)
		}
		l.IDs = append(l.IDs, id)
	}
	return l, nil
}

// Has tells whether a client of that name is one of a node that is down.
func (l LostClients) Has(client string) bool {
	return slices.ContainsFunc(l.IDs, func(id string) bool { return HasNFSClientID(client, id) })
}
