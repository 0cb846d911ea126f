package sharemanager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// noteLasts is how long after the deletion of a pod the next pod may get a list of lost clients.
	noteLasts = time.Minute
	// bootLasts is how long the leader waits for a new boot to be reported by the kubelet of a node that answers again.
	bootLasts = 30 * time.Second
	// requestLasts is how long a request for new pods is stored. After that time controller/remount no longer acts on
	// it.
	requestLasts = 15 * time.Minute
	// maxLostClients limits the size of the status.
	maxLostClients = 64
)

// fate is the state of a node, as the objects report it.
type fate struct {
	clientID string // its UID
	name     string
	isDown   bool
	// listed is the node's entry in the next pod's list, if the node is in that list. bootID is the boot in which the
	// node fell silent.
	listed types.LostNode
	bootID string
	// boot is the node's present boot, as its kubelet reports it. answers is since when the node answers.
	boot    string
	answers time.Time
}

// gatherLost reads which nodes are down; a new pod's list needs this. It also reads the state of the clients in earlier
// lists.
func (c *Controller) gatherLost(in *Input) error {
	engines, err := c.Engines.ByIndex(datastore.IndexVolume, in.Share.Name)
	if err != nil {
		return err
	}
	if len(engines) == 1 && engines[0].Status.Epoch != nil {
		in.Generation = engines[0].Status.Epoch.Generation
	}
	if in.former() == 0 && len(in.Share.Status.LostClients) == 0 {
		return nil
	}
	nodes, err := c.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	in.Fates = map[string]fate{}
	for _, n := range nodes {
		k, err := orNone(c.KubeNodes.GetRO(n.Name))
		if err != nil {
			return err
		}
		f, err := c.fateOf(n, k, nodes)
		if err != nil {
			return err
		}
		in.Fates[f.clientID] = f
		if addresses := types.KubeletAddresses(k); !f.isDown && !f.answers.IsZero() && len(addresses) > 0 {
			in.Controls = append(in.Controls, types.Control{Node: n.Name, Address: addresses[0]})
		}
	}
	slices.SortFunc(in.Controls, func(a, b types.Control) int { return strings.Compare(a.Node, b.Node) })
	return nil
}

// fateOf returns the known state of a node. k is the Kubernetes node, or nil.
//
//	the node                                              its client is
//	----------------------------------------------------  ---------------------------------------------------------------
//	answers neither the leader nor a witness              in the list
//	does not answer the leader, and there is no witness   not: it may be the leader that is cut off
//	is not ready, as Kubernetes says                      not: its kubelet may have stopped, and its pods still run
//	its boot is not known                                 not: nothing would show whether it has restarted
//	its kubelet reports another boot than it had then     not: it has been back since
//	has an identifier that an administrator chose         not: another node may have the same one, and report none
//	has the identifier of another node                    not: the other node may have the record
//	reports no identifier                                 not: its record cannot be distinguished from others
//	has no address                                        not: no component can check whether it answers
func (c *Controller) fateOf(n *longhorn.Node, k *corev1.Node, all []*longhorn.Node) (fate, error) {
	f := fate{clientID: string(n.UID), name: n.Name, isDown: types.IsNodeDown(n)}
	if k != nil {
		f.boot = k.Status.NodeInfo.BootID
	}
	ready := types.FindCondition(n.Status.Conditions, types.ConditionReady)
	if since, err := time.Parse(time.RFC3339, ready.LastTransitionTime); err == nil && !f.isDown && n.Status.Silence == nil {
		f.answers = since
	}
	s := n.Status.Silence
	if !f.isDown || s == nil || s.Witness == "" || s.BootID == "" || s.BootID != f.boot || !hasOwnClient(n, all) {
		return f, nil
	}
	addresses, err := c.lifeAddresses(k)
	if err != nil || len(addresses) == 0 {
		return f, err
	}
	f.bootID, f.listed = s.BootID, types.LostNode{ClientID: f.clientID, Addresses: addresses}
	return f, nil
}

// hasOwnClient reports whether a node's client has the identifier that this product gave it, and no other node has it.
func hasOwnClient(n *longhorn.Node, all []*longhorn.Node) bool {
	id := n.Status.NFSClientID
	return id == string(n.UID) && types.IsNFSClientID(id) && !slices.ContainsFunc(all, func(other *longhorn.Node) bool {
		return other.Name != n.Name && other.Status.NFSClientID == id
	})
}

// lifeAddresses are the addresses where a node answers if it lives: first its kubelet and its instance manager, then
// some of its shares.
func (c *Controller) lifeAddresses(k *corev1.Node) ([]string, error) {
	if k == nil {
		return nil, nil
	}
	managers, err := c.Managers.ByIndex(datastore.IndexNode, k.Name)
	if err != nil {
		return nil, err
	}
	pods, err := c.Pods.ByIndex(datastore.IndexNode, k.Name)
	if err != nil {
		return nil, err
	}
	addresses := types.LifeAddresses(k, nil, managers)
	for _, a := range types.LifeAddresses(k, pods, nil) {
		if !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	return addresses[:min(len(addresses), types.MaxLostAddresses)], nil
}

// guardsPort reports whether a pod can ask its engine. A pod of an earlier release cannot.
func guardsPort(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == generationsVolume })
}

// former is the generation of the former server's engine, if the next pod may get a list about it; 0: it gets no list.
// A server counts only in these conditions:
//
//   - Its port closes automatically, and this share's status said so before the leader deleted its pod.
//   - The volume has had no other engine since.
func (in Input) former() int64 {
	s := in.Share.Status.Server
	if in.Pod != nil || s == nil || s.Generation < 1 || s.Generation != in.Generation {
		return 0
	}
	at, err := time.Parse(time.RFC3339, s.DeletedAt)
	if err != nil || at.After(in.Now) || in.Now.Sub(at) > noteLasts {
		return 0
	}
	return s.Generation
}

// lost is the next pod's list. It names at most three other nodes, because the pod may be on one of them.
func (in Input) lost() types.LostClients {
	l := types.LostClients{After: in.former(), Controls: in.Controls[:min(len(in.Controls), types.MaxControls)]}
	if l.After == 0 {
		return types.LostClients{}
	}
	for _, id := range slices.Sorted(maps.Keys(in.Fates)) {
		if f := in.Fates[id]; f.listed.ClientID != "" && len(l.Nodes) < types.MaxLostNodes {
			l.Nodes = append(l.Nodes, f.listed)
		}
	}
	if l.String() == "" {
		return types.LostClients{}
	}
	return l
}

// lostVariables inform a pod about the clients for which its first server need not wait.
func (in Input) lostVariables() []corev1.EnvVar {
	text := in.lost().String()
	if text == "" {
		return nil
	}
	return []corev1.EnvVar{
		{Name: types.LostClientsEnv, Value: text},
		{Name: types.PodNodeEnv, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
	}
}

// listOf is the list that a pod was created with.
func listOf(pod *corev1.Pod) types.LostClients {
	for _, container := range pod.Spec.Containers {
		for _, v := range container.Env {
			if container.Name == containerName && v.Name == types.LostClientsEnv {
				l, _ := types.ParseLostClients(v.Value) // the pod cannot parse it either, if this leader cannot
				return l
			}
		}
	}
	return types.LostClients{}
}

// noteServer stores which pod's port closes automatically. It also stores when the leader deletes that pod, and the
// generation of its engine.
//
//	the pod                                       the status
//	----------------------------------------      --------------------------------------------------
//	says that its port closes automatically       names it
//	is another one, or cannot ask its engine      names none
//	is deleted by the leader                      has the engine's generation, and when
//	is created                                    names none: a list is given once
//	is gone                                       stays: the next pod's list needs it
func (in Input) noteServer(p *Plan) {
	pod, s := in.Pod, p.Status.Server
	switch {
	case pod == nil && p.CreatePod != nil:
		in.list(p)
		p.Status.Server = nil
		return
	case pod == nil:
		return
	case !guardsPort(pod) || in.Recovery != nil && !in.Recovery.PortGuarded:
		s = nil
	case in.Recovery != nil && (s == nil || s.PodUID != string(pod.UID)):
		s = &longhorn.ShareServer{PodUID: string(pod.UID)}
	case s != nil && s.PodUID != string(pod.UID):
		s = nil
	}
	if s != nil && p.DeletePod != nil && s.DeletedAt == "" && in.Generation > 0 {
		s = &longhorn.ShareServer{PodUID: s.PodUID, Generation: in.Generation, DeletedAt: types.Timestamp(in.Now)}
	}
	p.Status.Server = s
}

// list stores the clients in the list of a pod before that pod is created: the pod may stop before it has reported its
// actions.
func (in Input) list(p *Plan) {
	l := in.lost()
	for _, n := range l.Nodes {
		f := in.Fates[n.ClientID]
		isKnown := slices.ContainsFunc(p.Status.LostClients, func(c longhorn.LostClient) bool {
			return c.ID == n.ClientID && c.After == l.After
		})
		if !isKnown {
			p.Status.LostClients = append(slices.Clone(p.Status.LostClients), longhorn.LostClient{ID: n.ClientID, Node: f.name, BootID: f.bootID, After: l.After})
		}
	}
	p.Status.LostClients = p.Status.LostClients[max(0, len(p.Status.LostClients)-maxLostClients):]
}

// watchLost decides about the clients that a list had:
//
//	the client                                             consequence
//	-----------------------------------------------------  ------------------------------------------------------------
//	its node is gone, or has booted                        forgotten: no pod has anything to lose
//	the pod with its list says that its record stays       forgotten
//	that pod says that its record is gone                  remembered
//	another pod serves: that pod exited without a report   remembered, as if its record were gone
//	its record is gone, its node answers in the same boot  the pods on its node that use the volume are restarted, once
func (in Input) watchLost(p *Plan) {
	var kept []longhorn.LostClient
	for _, c := range p.Status.LostClients {
		if in.Recovery != nil && !c.Dropped {
			l := listOf(in.Pod)
			isItsList := l.After == c.After && slices.Contains(l.IDs(), c.ID)
			if c.Dropped = !isItsList || slices.Contains(in.Recovery.Dropped, c.ID); !c.Dropped {
				continue
			}
		}
		if in.keeps(p, &c) {
			kept = append(kept, c)
		}
	}
	p.Status.LostClients = kept
}

// keeps reports whether a client must be remembered, and requests new pods on its node if that is due.
func (in Input) keeps(p *Plan, c *longhorn.LostClient) bool {
	f, isThere := in.Fates[c.ID]
	at, err := time.Parse(time.RFC3339, c.RemountRequestedAt)
	isRequested := err == nil
	switch {
	case in.Fates != nil && !isThere, isThere && f.boot != "" && f.boot != c.BootID, isRequested && in.Now.Sub(at) > requestLasts:
		return false
	case !isThere || isRequested || !c.Dropped || f.isDown || f.answers.IsZero() || f.boot == "":
		return true
	}
	if left := f.answers.Add(bootLasts).Sub(in.Now); left > 0 {
		p.wakeAfter(left)
		return true
	}
	c.RemountRequestedAt = types.Timestamp(in.Now)
	message := fmt.Sprintf("Node %s did not answer when another server of the volume started. It answers again, without a reboot. The volume's clients on this node have lost their open files and locks. "+
		"The manager has requested a restart of the pods on node %s that use the volume", c.Node, c.Node)
	p.told = append(p.told, Event{corev1.EventTypeWarning, types.EventClientStateLost, message})
	return true
}
