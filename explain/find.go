package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Match is an object that the command explain can explain.
type Match struct {
	// Kind is volume, node, disk, claim, persistent volume, pod, snapshot or setting.
	Kind Kind
	// Name is namespace/name for a claim or a pod.
	Name string
	// Node is the node of a disk, if the disk of this node only is meant.
	Node string
}

// Words returns the words that follow explain on the command line.
func (m Match) Words() string {
	words := string(m.Kind) + " " + m.Name
	if m.Kind == KindPV {
		words = "pv " + m.Name
	}
	if m.Node != "" {
		words += " --node " + m.Node
	}
	return words
}

// Find returns all objects that a name may mean. The name is that of a volume, node, disk, claim, PersistentVolume, pod,
// snapshot or setting, or of a part of one of them: a replica or an engine means its volume, an instance manager its node.
// NAMESPACE/NAME means a claim or a pod, and NODE/DISK a disk. With a namespace, a name without one means only claims
// and pods of this namespace, besides objects that have no namespace.
func Find(s *Snapshot, namespace, name string) []Match {
	var found []Match
	for _, known := range s.known() {
		if known.match.isIn(namespace) && slices.Contains(known.names, name) {
			found = append(found, known.match)
		}
	}
	slices.SortFunc(found, func(a, b Match) int {
		return cmp.Or(cmp.Compare(layer(a.Kind), layer(b.Kind)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	return slices.Compact(found)
}

// isIn reports whether a match has a namespace; empty: any. An object without a namespace is in all.
func (m Match) isIn(namespace string) bool {
	return namespace == "" || m.Kind != KindClaim && m.Kind != KindPod || strings.HasPrefix(m.Name, namespace+"/")
}

// Similar returns the objects whose name the user may have meant, in the order of Find.
func Similar(s *Snapshot, namespace, name string) []Match {
	var names []string
	for _, known := range s.known() {
		if known.match.isIn(namespace) {
			names = append(names, known.names...)
		}
	}
	slices.Sort(names)
	return Find(s, namespace, meant(name, names))
}

// known is an object that can be explained, and the names that mean it.
type known struct {
	match Match
	names []string
}

// known returns all objects that can be explained.
func (s *Snapshot) known() []known {
	var all []known
	add := func(m Match, names ...string) { all = append(all, known{m, names}) }
	for _, v := range s.Volumes {
		add(Match{Kind: KindVolume, Name: v.Name}, v.Name)
	}
	for _, e := range s.Engines {
		add(Match{Kind: KindVolume, Name: e.Spec.VolumeName}, e.Name)
	}
	for _, r := range s.Replicas {
		add(Match{Kind: KindVolume, Name: r.Spec.VolumeName}, r.Name)
	}
	for _, n := range s.Nodes {
		add(Match{Kind: KindNode, Name: n.Name}, n.Name, types.InstanceManagerName(n.Name))
		for _, disk := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
			add(Match{Kind: KindDisk, Name: disk}, disk)
			add(Match{Kind: KindDisk, Name: disk, Node: n.Name}, n.Name+"/"+disk)
		}
	}
	for _, taken := range s.Snapshots {
		add(Match{Kind: KindSnapshot, Name: taken.Name}, taken.Name)
	}
	for _, setting := range s.Settings {
		add(Match{Kind: KindSetting, Name: setting.Name}, setting.Name)
	}
	for _, pv := range s.PersistentVolumes {
		if isOurs(pv) && !(pv.Spec.CSI.VolumeHandle == pv.Name && named(s.Volumes, pv.Name) != nil) { // explained with its volume
			add(Match{Kind: KindPV, Name: pv.Name}, pv.Name)
		}
	}
	for _, c := range s.Claims {
		full := c.Namespace + "/" + c.Name
		add(Match{Kind: KindClaim, Name: full}, c.Name, full)
	}
	for _, pod := range s.UserPods {
		full := pod.Namespace + "/" + pod.Name
		add(Match{Kind: KindPod, Name: full}, pod.Name, full)
	}
	return all
}

// maxFits is the maximum number of objects that a sentence lists.
const maxFits = 5

// Choices returns the command lines that explain objects, as part of a sentence. call is the start of each line.
func Choices(call string, matches []Match) string {
	var lines []string
	for _, m := range matches[:min(len(matches), maxFits)] {
		lines = append(lines, call+" "+m.Words())
	}
	text := strings.Join(lines, ", or: ")
	if more := len(matches) - maxFits; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}
