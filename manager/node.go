package manager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// managerPodLabel and its value select the pods of the daemon.
const (
	managerPodLabel = "app"
	managerPodValue = "longhorn-manager"
)

// NodeView is a node. Callers must not modify it.
type NodeView struct {
	Node *Node
	// Address is the IP of the node's manager pod; empty while it has none.
	Address string
	// SpecVersion changes with each change of the requested state of the node. It does not change with the state that
	// the node reports.
	SpecVersion string
}

// NodeUpdate replaces all that a user can set on a node, except its disks.
type NodeUpdate struct {
	AllowScheduling   bool
	EvictionRequested bool
	Tags              []string
	// InstanceManagerCPURequest is in thousandths of a CPU, 0 for the value of the setting; nil leaves it unchanged.
	InstanceManagerCPURequest *int
	// IfSpecVersion is the SpecVersion that the node must have; empty: any.
	IfSpecVersion string
}

// DisksUpdate replaces all disks of a node.
type DisksUpdate struct {
	Disks map[string]DiskSpec
	// IfSpecVersion is the SpecVersion that the node must have; empty: any.
	IfSpecVersion string
}

// ListNodes returns all nodes, sorted by name.
func (m *Manager) ListNodes() ([]NodeView, error) {
	nodes, err := m.deps.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	views := make([]NodeView, 0, len(nodes))
	for _, n := range nodes {
		view, err := m.nodeView(n)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

// Node returns one node.
func (m *Manager) Node(name string) (NodeView, error) {
	n, err := m.deps.Nodes.GetRO(name)
	if err != nil {
		return NodeView{}, storeError("node", name, err)
	}
	return m.nodeView(n)
}

// UpdateNode overwrites the fields of NodeUpdate. It fails with ErrChanged if the node does not have the version in the
// update.
func (m *Manager) UpdateNode(ctx context.Context, name string, update NodeUpdate) (NodeView, error) {
	if update.AllowScheduling && update.EvictionRequested {
		return NodeView{}, &Invalid{Field: "evictionRequested", Rule: "must not be true while allowScheduling is true"}
	}
	tags, err := checkedTags("tags", update.Tags)
	if err != nil {
		return NodeView{}, err
	}
	if cpu := update.InstanceManagerCPURequest; cpu != nil && *cpu < 0 {
		return NodeView{}, &Invalid{Field: "instanceManagerCPURequest", Value: strconv.Itoa(*cpu), Rule: "must be 0 or greater, in thousandths of a CPU"}
	}
	return m.changeNode(ctx, name, update.IfSpecVersion, func(n *Node) error {
		if update.InstanceManagerCPURequest != nil {
			n.Spec.InstanceManagerCPURequest = *update.InstanceManagerCPURequest
		}
		n.Spec.AllowScheduling = update.AllowScheduling
		n.Spec.EvictionRequested = update.EvictionRequested
		n.Spec.Tags = tags
		return nil
	})
}

// DeleteNode removes a node whose Kubernetes node was removed. While the API server still has the Kubernetes node,
// DeleteNode refuses with ErrConflict, unless the daemon has left that node permanently (condition Removable). The
// leader also removes such nodes automatically. DeleteNode is for users who do not want to rely on that.
func (m *Manager) DeleteNode(ctx context.Context, name string) error {
	err := m.retry(ctx, func() error {
		n, err := byName(ctx, m.deps.Nodes, name)
		if err != nil {
			return err
		}
		switch _, err := m.deps.KubeNodes.Live(ctx, name); {
		case err == nil && !types.IsNodeRemovable(n):
			return conflict("node %s cannot be deleted while its Kubernetes node exists: it would be registered again without its disks and tags;"+
				" it is removed automatically when its Kubernetes node is removed", name)
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("read Kubernetes node %s: %w", name, err)
		}
		return m.deps.Nodes.Delete(ctx, name, datastore.Preconditions{UID: n.UID, ResourceVersion: n.ResourceVersion})
	})
	if err != nil {
		return storeError("node", name, err)
	}
	m.deps.Log.WithField("node", name).Info("node removed on request")
	return nil
}

// UpdateDisks replaces all disks of a node. It fails with ErrChanged if the node does not have the version in the
// update. It checks the update against the state that is recorded now, and refuses with ErrConflict:
//
//	disk left out                                     refused
//	allowScheduling on                                yes
//	ready, and holds a replica                        yes
//	not ready: unmounted, gone, its node is down      no: its replicas stay, and are found with the disk
//
// The path of a ready disk that holds a replica cannot change either: to move the disk, unmount it first.
func (m *Manager) UpdateDisks(ctx context.Context, name string, update DisksUpdate) (NodeView, error) {
	checked, err := checkedDisks(update.Disks)
	if err != nil {
		return NodeView{}, err
	}
	return m.changeNode(ctx, name, update.IfSpecVersion, func(n *Node) error {
		if err := checkNewPaths(n.Spec.Disks, checked); err != nil {
			return err
		}
		for _, disk := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
			after, kept := checked[disk]
			if before := n.Spec.Disks[disk].Path; kept && after.Path == path.Clean(before) {
				after.Path = before // keep the existing spelling: the path does not change
				checked[disk] = after
				continue
			}
			if err := m.checkMovable(n, disk, kept); err != nil {
				return err
			}
		}
		n.Spec.Disks = checked
		return nil
	})
}

// checkNewPaths refuses system directories as new paths. It accepts an existing path, so that a node with a disk of an
// older installation can still be changed.
func checkNewPaths(before, after map[string]DiskSpec) error {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if was, ok := before[name]; ok && path.Clean(was.Path) == after[name].Path {
			continue
		}
		if err := types.CheckDiskPath(after[name].Path); err != nil {
			return &Invalid{Field: "disks." + name + ".path", Value: after[name].Path, Rule: err.Error()}
		}
	}
	return nil
}

// changeNode calls change for the node and writes the result. If ifSpecVersion is set and is not the node's, it fails.
func (m *Manager) changeNode(ctx context.Context, name, ifSpecVersion string, change func(*Node) error) (NodeView, error) {
	var updated *Node
	err := m.retry(ctx, func() error {
		n, err := byName(ctx, m.deps.Nodes, name)
		if err != nil {
			return err
		}
		version, err := specVersion(n.Spec)
		if err != nil {
			return err
		}
		if ifSpecVersion != "" && ifSpecVersion != version {
			return &Problem{Class: ErrChanged, Text: fmt.Sprintf("node %q has changed since the client read it; read it again", name)}
		}
		if err := change(n); err != nil {
			return err
		}
		updated, err = m.deps.Nodes.Update(ctx, n)
		return err
	})
	if err != nil {
		return NodeView{}, storeError("node", name, err)
	}
	m.deps.Log.WithField("node", name).Info("node changed on request")
	m.awaitCache(ctx, func() bool {
		cached, err := m.deps.Nodes.GetRO(name)
		return err != nil || cached.Generation >= updated.Generation
	})
	return m.nodeView(updated)
}

func (m *Manager) nodeView(n *Node) (NodeView, error) {
	pods, err := m.deps.Pods.ByIndex(datastore.IndexNode, n.Name)
	if err != nil {
		return NodeView{}, fmt.Errorf("list pods of node %s: %w", n.Name, err)
	}
	version, err := specVersion(n.Spec)
	if err != nil {
		return NodeView{}, err
	}
	view := NodeView{Node: n, SpecVersion: version}
	for _, pod := range pods {
		if pod.Labels[managerPodLabel] == managerPodValue && pod.DeletionTimestamp == nil && pod.Status.PodIP != "" {
			view.Address = pod.Status.PodIP
		}
	}
	return view, nil
}

// specVersion returns the start of a hash of the spec. Nodes with the same requested state have the same version,
// unlike the object's generation. The version does not change with the status, unlike the resourceVersion. Another
// release of this program may compute another version for the same spec; clients then read the node again.
func specVersion(spec longhorn.NodeSpec) (string, error) {
	text, err := json.Marshal(spec) // keys of maps are sorted
	if err != nil {
		return "", fmt.Errorf("encode a node's spec: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// checkMovable returns the reason why a disk may not be removed. If kept is true, it returns the reason why the disk's
// path may not change. It checks the disk's status and also the replicas themselves, because the status lags behind.
// The admission policies of nodes have the same rules and texts for kubectl.
func (m *Manager) checkMovable(n *Node, disk string, kept bool) error {
	status := n.Status.DiskStatus[disk]
	held := conflict("disk %s of node %s is ready and holds replicas: it cannot be removed, and its path cannot change;"+
		" first evict its replicas (allowScheduling false, evictionRequested true) and wait until its condition Emptied is True,"+
		" or unmount the disk to move it together with its replicas", disk, n.Name)
	switch {
	case !kept && n.Spec.Disks[disk].AllowScheduling:
		return conflict("disk %s of node %s cannot be removed while its allowScheduling is true: disable the disk first", disk, n.Name)
	case !types.IsConditionTrue(status.Conditions, types.ConditionReady):
		return nil
	case status.StorageScheduled > 0:
		return held
	}
	replicas, err := m.deps.Replicas.ByIndex(datastore.IndexDisk, status.DiskUUID)
	if err != nil {
		return fmt.Errorf("list replicas on disk %s: %w", status.DiskUUID, err)
	}
	if status.DiskUUID != "" && len(replicas) > 0 {
		return held
	}
	return nil
}

// checkedDisks validates each disk of a set separately and returns the set in its stored form. Two disks with one path,
// or on one file system, are accepted. Only the node can detect these, and the node controller shows the conflict in
// the condition Ready of the disks.
func checkedDisks(disks map[string]DiskSpec) (map[string]DiskSpec, error) {
	checked := make(map[string]DiskSpec, len(disks))
	for _, name := range slices.Sorted(maps.Keys(disks)) {
		disk, err := checkedDisk(name, disks[name])
		if err != nil {
			return nil, err
		}
		checked[name] = disk
	}
	return checked, nil
}

func checkedDisk(name string, disk DiskSpec) (DiskSpec, error) {
	field := "disks." + name
	if name == "" {
		return disk, &Invalid{Field: "disks", Rule: "a disk must have a name"}
	}
	if disk.Type == "" {
		disk.Type = longhorn.DiskTypeFilesystem
	}
	switch {
	case disk.Type != longhorn.DiskTypeFilesystem:
		return disk, &Invalid{Field: field + ".diskType", Value: string(disk.Type), Rule: "must be " + string(longhorn.DiskTypeFilesystem)}
	case disk.Driver != "":
		return disk, &Invalid{Field: field + ".diskDriver", Value: disk.Driver, Rule: "must be empty: only block disks have a driver"}
	case !path.IsAbs(disk.Path):
		return disk, &Invalid{Field: field + ".path", Value: disk.Path, Rule: types.CheckDiskPath(disk.Path).Error()}
	case disk.StorageReserved < 0:
		return disk, &Invalid{Field: field + ".storageReserved", Value: strconv.FormatInt(disk.StorageReserved, 10), Rule: "must not be negative"}
	case disk.EvictionRequested && disk.AllowScheduling:
		return disk, &Invalid{Field: field + ".evictionRequested", Rule: "must not be true while allowScheduling is true"}
	}
	disk.Path = path.Clean(disk.Path)
	tags, err := checkedTags(field+".tags", disk.Tags)
	disk.Tags = tags
	return disk, err
}

// badTags is in every refusal of tags: scripts written for Longhorn search for these words.
const badTags = "at least one error encountered while validating tags"

// checkedTags returns the tags sorted and without duplicates.
func checkedTags(field string, tags []string) ([]string, error) {
	tags, err := checkedSelector(field, tags)
	slices.Sort(tags)
	return tags, err
}

// checkedSelector returns the tags in the given order, without duplicates; the result is not nil.
func checkedSelector(field string, tags []string) ([]string, error) {
	result := make([]string, 0, len(tags))
	for i, given := range tags {
		tag := strings.TrimSpace(given)
		if tag == "" {
			return nil, &Invalid{Field: fmt.Sprintf("%s[%d]", field, i), Rule: fmt.Sprintf("%s: %q is not a valid tag: a tag must not be empty", badTags, given)}
		}
		if problems := validation.IsQualifiedName(tag); len(problems) > 0 {
			return nil, &Invalid{Field: field, Value: tag, Rule: "is not a valid tag: " + strings.Join(problems, "; ") + " (" + badTags + ")"}
		}
		if !slices.Contains(result, tag) {
			result = append(result, tag)
		}
	}
	return result, nil
}
