package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// HostNFSClient is how the daemon and the CSI plugin agree on the identifier of the node's NFS client. The plugin
// mounts shares and sets the identifier.
type HostNFSClient struct {
	// Directory is types.NFSClientDirectory of the node, as this process sees it.
	Directory string
}

// Identify stores the wanted identifier for the plugin. It returns the identifier that all of the node's clients of
// shares have; "": not known. It is not known while the plugin is of a release that does not report it, or has mounted
// no share since the node started.
func (h HostNFSClient) Identify(wanted string) (string, error) {
	if err := h.want(wanted); err != nil {
		return "", fmt.Errorf("store the wanted identifier of the node's NFS client: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(h.Directory, types.NFSClientHeld))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the identifier of the node's NFS client: %w", err)
	case !types.IsNFSClientID(string(data)):
		return "", nil
	}
	return string(data), nil
}

func (h HostNFSClient) want(id string) error {
	path := filepath.Join(h.Directory, types.NFSClientWanted)
	if data, err := os.ReadFile(path); err == nil && string(data) == id || id == "" {
		return nil
	}
	if err := os.MkdirAll(h.Directory, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(id), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// namedSharers is how many of the nodes with one identifier a condition names.
const namedSharers = 5

// clientIDUnique decides the condition NFSClientIDUnique of a node, given all nodes. Nodes that report nothing are
// ignored: without an identifier, a client is known by the name of the CSI plugin's pod, which no two nodes have.
func clientIDUnique(n *longhorn.Node, all []*longhorn.Node, now time.Time) []longhorn.Condition {
	others := sharers(n, all)
	c := longhorn.Condition{Type: types.ConditionNFSClientIDUnique, Status: longhorn.ConditionTrue, Message: fmt.Sprintf("no other node reports the NFS client identifier of node %s", n.Name)}
	switch {
	case len(others) > 0:
		more := ""
		if len(others) > namedSharers {
			others, more = others[:namedSharers], fmt.Sprintf(" and %d more", len(others)-namedSharers)
		}
		c.Status, c.Reason = longhorn.ConditionFalse, types.ReasonNFSClientIDShared
		c.Message = fmt.Sprintf("the NFS client of node %s has the identifier %q, and so have the NFS clients of %s%s: by it, servers of shared volumes cannot distinguish the nodes. "+
			"If these clients also have the same host name, a server treats them as one client: each client closes the open files and locks of the others. "+
			"Give each node an identifier of its own (/sys/fs/nfs/net/nfs_client/identifier, or parameter nfs4_unique_id of the module nfs) and restart the nodes. "+
			"A node without an identifier gets one automatically",
			n.Name, n.Status.NFSClientID, strings.Join(others, ", "), more)
	case types.FindCondition(n.Status.Conditions, types.ConditionNFSClientIDUnique).Status == longhorn.ConditionUnknown:
		return n.Status.Conditions
	}
	conditions, _ := types.SetCondition(n.Status.Conditions, c, now)
	return conditions
}

// sharers are the names of the other nodes that report a node's identifier, sorted.
func sharers(n *longhorn.Node, all []*longhorn.Node) (names []string) {
	for _, other := range all {
		if other.Name != n.Name && other.Status.NFSClientID != "" && other.Status.NFSClientID == n.Status.NFSClientID {
			names = append(names, other.Name)
		}
	}
	slices.Sort(names)
	return names
}

// sharersOfClientID are the nodes with a condition that depends on a node's former or present report.
func (m *Monitor) sharersOfClientID(was, is *longhorn.Node) (names []string) {
	var ids []string
	for _, n := range []*longhorn.Node{was, is} {
		if n != nil && n.Status.NFSClientID != "" {
			ids = append(ids, n.Status.NFSClientID)
		}
	}
	if len(ids) == 0 || len(ids) == 2 && ids[0] == ids[1] {
		return nil
	}
	all, err := m.deps.Nodes.List(labels.Everything())
	if err != nil {
		// the cache cannot fail to list; each node's next sync decides in any case
		return nil
	}
	for _, n := range all {
		if slices.Contains(ids, n.Status.NFSClientID) {
			names = append(names, n.Name)
		}
	}
	return names
}
