package inspect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Status is an overview of the cluster. Scripts use its JSON.
type Status struct {
	Namespace string            `json:"namespace"`
	Nodes     []NodeStatus      `json:"nodes"`
	Volumes   []VolumeStatus    `json:"volumes"`
	Findings  []explain.Finding `json:"findings"`
	// Causes are the Findings for the table: each cause is followed by its consequences.
	Causes []explain.Cause `json:"-"`
	// Unseen lists the kinds that the user may not read. Results that depend on them are missing.
	Unseen []string `json:"unseen,omitempty"`
}

// NodeStatus is the status of one node; sizes are in bytes.
type NodeStatus struct {
	Name             string `json:"name"`
	Ready            bool   `json:"ready"`
	Schedulable      bool   `json:"schedulable"` // a disk of the node takes new replicas
	Disks            int    `json:"disks"`
	ReadyDisks       int    `json:"readyDisks"`
	StorageMaximum   int64  `json:"storageMaximum"`
	StorageAvailable int64  `json:"storageAvailable"`
	StorageScheduled int64  `json:"storageScheduled"`
}

// VolumeStatus is the status of one volume; its size is in bytes.
type VolumeStatus struct {
	Name string `json:"name"`
	// Claim is the claim that uses the volume, as namespace/name; empty: no claim uses it.
	Claim      string                    `json:"claim,omitempty"`
	State      longhorn.VolumeState      `json:"state"`
	Robustness longhorn.VolumeRobustness `json:"robustness"`
	Node       string                    `json:"node"`
	Size       int64                     `json:"size"`
	// GoodCopies is null if the user may not read the objects that it is computed from.
	GoodCopies *int `json:"goodCopies"`
	Copies     int  `json:"copies"`
}

// StatusOf returns the overview of a snapshot.
func StatusOf(s *explain.Snapshot) Status {
	found := explain.All(s)
	status := Status{Namespace: s.Namespace, Nodes: []NodeStatus{}, Volumes: []VolumeStatus{}, Findings: found, Causes: explain.CausesOf(s, found), Unseen: s.Unseen}
	if status.Findings == nil {
		status.Findings = []explain.Finding{}
	}
	for _, n := range s.Nodes {
		status.Nodes = append(status.Nodes, nodeStatus(n))
	}
	for _, v := range s.Volumes {
		status.Volumes = append(status.Volumes, volumeStatus(s, v))
	}
	slices.SortFunc(status.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(status.Volumes, func(a, b VolumeStatus) int { return cmp.Compare(a.Name, b.Name) })
	return status
}

func nodeStatus(n *longhorn.Node) NodeStatus {
	status := NodeStatus{Name: n.Name, Disks: len(n.Spec.Disks), Ready: types.IsConditionTrue(n.Status.Conditions, types.ConditionReady)}
	for name, d := range n.Status.DiskStatus {
		status.Schedulable = status.Schedulable || takesReplicas(n, n.Spec.Disks[name], d)
		if types.IsConditionTrue(d.Conditions, types.ConditionReady) {
			status.ReadyDisks++
			status.StorageMaximum += d.StorageMaximum
			status.StorageAvailable += d.StorageAvailable
			status.StorageScheduled += d.StorageScheduled
		}
	}
	return status
}

// takesReplicas reports whether new replicas may be placed on a disk. The web page has the same rule, in
// ui/src/lib/capacity.ts.
func takesReplicas(n *longhorn.Node, spec longhorn.DiskSpec, status longhorn.DiskStatus) bool {
	isAllowed := n.Spec.AllowScheduling && spec.AllowScheduling && !n.Spec.EvictionRequested && !spec.EvictionRequested
	for _, list := range [][]longhorn.Condition{n.Status.Conditions, status.Conditions} {
		isAllowed = isAllowed && types.IsConditionTrue(list, types.ConditionReady) && types.IsConditionTrue(list, types.ConditionSchedulable)
	}
	return isAllowed
}

func volumeStatus(s *explain.Snapshot, v *longhorn.Volume) VolumeStatus {
	status := VolumeStatus{
		Name: v.Name, Claim: s.ClaimOf(v.Name), State: v.Status.State, Robustness: s.RobustnessOf(v), Node: v.Status.CurrentNodeID, Size: int64(v.Spec.Size), Copies: v.Spec.NumberOfReplicas,
	}
	if s.MayNotRead(explain.ResourceEngines) || s.MayNotRead(explain.ResourceReplicas) {
		return status
	}
	status.GoodCopies = new(int)
	for _, e := range s.Engines {
		if e.Spec.VolumeName == v.Name {
			*status.GoodCopies = len(types.GoodCopies(e, s.Replicas))
		}
	}
	return status
}

// title returns the claim of a volume, or its name if it has none. Tables have too few columns for both.
func (v VolumeStatus) title() string { return cmp.Or(v.Claim, v.Name) }

// Status prints the overview as tables: nodes, volumes, and problems. A volume is listed by its claim.
func (p Printer) Status(s Status) { p.status(s, p.volumes) }

// WideStatus is Status with the names of all volumes, in lines of any length.
func (p Printer) WideStatus(s Status) { p.status(s, p.wideVolumes) }

func (p Printer) status(s Status, volumes func([]VolumeStatus)) {
	nodes := table{{"NODE", "READY", "SCHEDULABLE", "DISKS", "FREE", "SIZE", "PROMISED"}}
	for _, n := range s.Nodes {
		free, size, promised := "-", "-", "-" // no disk is ready, so its sizes are not known
		if n.ReadyDisks > 0 {
			free, size, promised = types.SizeText(n.StorageAvailable), types.SizeText(n.StorageMaximum), types.SizeText(n.StorageScheduled)
		}
		nodes.add(n.Name, yes(n.Ready), yes(n.Schedulable), fmt.Sprintf("%d/%d", n.ReadyDisks, n.Disks), free, size, promised)
	}
	p.table(nodes)
	fmt.Fprintln(p.Out)
	volumes(slices.SortedStableFunc(slices.Values(s.Volumes), func(a, b VolumeStatus) int { return cmp.Compare(a.title(), b.title()) }))
	fmt.Fprintln(p.Out)
	p.summary(s.Causes, s.Unseen)
	p.unseen(s.Unseen)
}

func (p Printer) volumes(list []VolumeStatus) {
	t := table{{"VOLUME", "STATE", "ROBUSTNESS", "COPIES", "SIZE", "NODE"}}
	for _, v := range list {
		t.add(v.title(), string(v.State), string(v.Robustness), v.copies(), types.SizeText(v.Size), v.Node)
	}
	p.table(t)
}

func (p Printer) wideVolumes(list []VolumeStatus) {
	t := table{{"VOLUME", "STATE", "ROBUSTNESS", "COPIES", "SIZE", "NODE", "NAME"}}
	for _, v := range list {
		t.add(v.title(), string(v.State), string(v.Robustness), v.copies(), types.SizeText(v.Size), v.Node, v.Name)
	}
	Printer{p.Out, math.MaxInt}.table(t)
}

// copies returns how many of the requested replicas are healthy.
func (v VolumeStatus) copies() string {
	good := "?"
	if v.GoodCopies != nil {
		good = strconv.Itoa(*v.GoodCopies)
	}
	return fmt.Sprintf("%s/%d", good, v.Copies)
}

// consequenceIndent is printed before the severity of a problem that probably follows from the one above.
const consequenceIndent = "  "

// summary prints a line for each error and warning, and the number of findings that are only for information. Problems
// that probably follow from another problem are below it.
func (p Printer) summary(causes []explain.Cause, unseen []string) {
	information, follow := 0, 0
	problems := table{{"SEVERITY", "PROBLEM"}}
	add := func(indent string, f explain.Finding) bool {
		if f.Severity == explain.Info {
			information++
			return false
		}
		problems.add(indent+string(f.Severity), sentence(f))
		return true
	}
	for _, c := range causes {
		indent := ""
		if add("", c.Finding) {
			indent = consequenceIndent
		}
		for _, f := range c.Consequences {
			if add(indent, f) && indent != "" {
				follow++
			}
		}
	}
	switch {
	case len(causes) == 0 && len(unseen) > 0:
		fmt.Fprintln(p.Out, "No problems found in the objects that your account may read.")
	case len(causes) == 0:
		fmt.Fprintln(p.Out, "No problems found.")
	case len(problems) == 1:
		p.hang("", fmt.Sprintf("No errors, no warnings. For information only: %d (kubectl longhorn explain).", information))
	default:
		p.table(problems)
		fmt.Fprintln(p.Out)
		if follow > 0 {
			p.hang("", "Indented problems probably follow from the problem above them.")
		}
		p.hang("", "For causes and next steps: kubectl longhorn explain, or kubectl longhorn explain NAME")
		p.hang("", fmt.Sprintf("For information only: %d", information))
	}
}

// sentence returns the problem of a finding in one sentence that names its object.
func sentence(f explain.Finding) string {
	words := strings.FieldsFunc(f.What, func(r rune) bool { return strings.ContainsRune(" :,;()\"'", r) })
	namesNode := f.Object.Kind != explain.KindDisk || slices.Contains(words, f.Object.Node)
	// The id of a ticket means nothing to users: its sentence names the volume and the node.
	if f.Object.Kind == explain.KindTicket || slices.Contains(words, f.Object.Name) && namesNode {
		return f.What
	}
	return f.Object.String() + ": " + f.What
}

func (p Printer) unseen(unseen []string) {
	for _, resource := range unseen {
		p.hang("", fmt.Sprintf("Your account may not read %s: problems that only these show are not listed.", resource))
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Findings prints the findings of a snapshot about one object, each with its cause and the next steps.
func (p Printer) Findings(s *explain.Snapshot, about string, found []explain.Finding) {
	switch {
	case len(found) == 0 && len(s.Unseen) > 0:
		p.hang("", about+": no problems found in the objects that your account may read.")
	case len(found) == 0:
		p.hang("", about+": no problems found.")
	}
	for i, f := range found {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		p.finding(s, f)
	}
	p.unseen(s.Unseen)
}

// finding prints a finding, its cause and the next steps. A title with a claim is long, so it is not printed twice.
func (p Printer) finding(s *explain.Snapshot, f explain.Finding) {
	heading := s.TitleOf(f.Object) + ": " + f.What
	if title := s.TitleOf(f.Object); f.Object.Kind == explain.KindTicket || title != f.Object.String() && strings.HasPrefix(f.What, title) {
		heading = f.What
	}
	p.hang(string(f.Severity)+"  ", heading+".")
	for _, why := range f.Why {
		p.hang("  why   ", why)
	}
	for _, step := range f.Next {
		p.hang("  next  ", step.Text+".")
		if step.Command != "" {
			fmt.Fprintf(p.Out, "          %s\n", step.Command)
		}
	}
}
