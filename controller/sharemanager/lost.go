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
	// noteLasts is how long after the deletion of a pod the next one may get a list of lost clients.
	noteLasts = time.Minute
	// bootLasts is how long a node that answers again has until its kubelet reports a new boot.
	bootLasts = 30 * time.Second
	// requestLasts is how long a request for new pods is remembered. After that controller/remount no longer acts on it.
	requestLasts = 15 * time.Minute
	// maxLostClients bounds the status.
	maxLostClients = 64
)

// fate is what the objects say of a node.
type fate struct {
	clientID string // its UID
	name     string
	isDown   bool
	// listed is what the next pod's list says of it, if it is one of those in the list; bootID is that in which the node fell silent.
	listed types.LostNode
	bootID string
	// boot is the node's boot by now, as its kubelet reports it, and answers is since when it answers.
	boot    string
	answers time.Time
}

// gatherLost reads which nodes are down, for a new pod's list, and what became of clients in earlier lists.
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

// fateOf tells what is known of a node; k is nil if there is no Kubernetes node.
//
//	the node                                              its client is
//	----------------------------------------------------  ---------------------------------------------------------------
//	answers neither the leader nor a witness              in the list
//	does not answer the leader, and there is no witness   not: it may be the leader that is cut off
//	is not ready, as Kubernetes says                      not: its kubelet may have stopped, and its pods still run
//	its boot is not known                                 not: nothing would tell whether it has restarted
//	its kubelet reports another boot than it had then     not: it was back meanwhile
//	has an identifier that an administrator chose         not: another node may have the same one, and report none
//	has the identifier of another node                    not: the other node may have the record
//	reports no identifier                                 not: its record cannot be told from others
//	has no address                                        not: it cannot be asked
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

// hasOwnClient tells whether a node's client has the identifier that this product gave it, and no other node has it.
func hasOwnClient(n *longhorn.Node, all []*longhorn.Node) bool {
	id := n.Status.NFSClientID
	return id == string(n.UID) && types.IsNFSClientID(id) && !slices.ContainsFunc(all, func(other *longhorn.Node) bool {
		return other.Name != n.Name && other.Status.NFSClientID == id
	})
}

// lifeAddresses are where a node answers if it lives: its kubelet and its instance manager first, then some of its shares.
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

// guardsPort tells whether a pod can ask its engine. A pod of an earlier release cannot.
func guardsPort(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == generationsVolume })
}

// former is the generation of the engine whose server the next pod's list may be about; 0: there is no list. Only a server whose port closes by itself
// counts, of which this share's status said so before the leader deleted its pod, and only if the volume has had no other engine since.
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

// lost is the next pod's list. It names at most three other nodes, as the pod may be on one of them.
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

// lostVariables tell a pod which clients its first server need not wait for.
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
				l, _ := types.ParseLostClients(v.Value) // what this leader cannot read, the pod cannot either
				return l
			}
		}
	}
	return types.LostClients{}
}

// noteServer remembers the pod whose port closes by itself, and when it is deleted with which engine.
//
//	the pod                                       the status
//	----------------------------------------      --------------------------------------------------
//	says that its port closes by itself           names it
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

// list remembers the clients in the list of a pod before that pod is created: it may end before it has said what it did.
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
//	the client                                             what follows
//	-----------------------------------------------------  ----------------------------------------------------------------
//	its node is gone, or has booted                        forgotten: no pod has anything to lose
//	the pod with its list says that its record is kept     forgotten
//	that pod says that its record is gone                  remembered
//	another pod serves: that pod ended and said nothing    remembered, as if its record were gone
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

// keeps tells whether a client must be remembered, and asks for new pods on its node if that is due.
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
	message := fmt.Sprintf("Node %s was silent when another server of the volume started, and answers again without a restart. Its clients have lost their open files and locks. "+
		"The pods on node %s that use the volume are to be restarted", c.Node, c.Node)
	p.told = append(p.told, Event{corev1.EventTypeWarning, types.EventClientStateLost, message})
	return true
}
