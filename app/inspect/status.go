package inspect

import (
	"cmp"
	"fmt"
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
	// Unseen lists the kinds that the user may not read. Results that depend on them are missing.
	Unseen []string `json:"unseen,omitempty"`
}

// NodeStatus is the status of one node; sizes are in bytes.
type NodeStatus struct {
	Name             string `json:"name"`
	Ready            bool   `json:"ready"`
	Schedulable      bool   `json:"schedulable"`
	Disks            int    `json:"disks"`
	ReadyDisks       int    `json:"readyDisks"`
	StorageMaximum   int64  `json:"storageMaximum"`
	StorageAvailable int64  `json:"storageAvailable"`
	StorageScheduled int64  `json:"storageScheduled"`
}

// VolumeStatus is the status of one volume; its size is in bytes.
type VolumeStatus struct {
	Name       string                    `json:"name"`
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
	status := Status{Namespace: s.Namespace, Nodes: []NodeStatus{}, Volumes: []VolumeStatus{}, Findings: explain.All(s), Unseen: s.Unseen}
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
	status := NodeStatus{
		Name: n.Name, Disks: len(n.Spec.Disks), Ready: types.IsConditionTrue(n.Status.Conditions, types.ConditionReady),
		Schedulable: n.Spec.AllowScheduling && types.IsConditionTrue(n.Status.Conditions, types.ConditionSchedulable),
	}
	for _, d := range n.Status.DiskStatus {
		if types.IsConditionTrue(d.Conditions, types.ConditionReady) {
			status.ReadyDisks++
			status.StorageMaximum += d.StorageMaximum
			status.StorageAvailable += d.StorageAvailable
			status.StorageScheduled += d.StorageScheduled
		}
	}
	return status
}

func volumeStatus(s *explain.Snapshot, v *longhorn.Volume) VolumeStatus {
	status := VolumeStatus{
		Name: v.Name, State: v.Status.State, Robustness: v.Status.Robustness, Node: v.Status.CurrentNodeID, Size: int64(v.Spec.Size), Copies: v.Spec.NumberOfReplicas,
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

// Status prints the overview as tables: nodes, volumes, and problems.
func (p Printer) Status(s Status) {
	nodes := table{{"NODE", "READY", "SCHEDULABLE", "DISKS", "FREE", "SIZE", "PROMISED"}}
	for _, n := range s.Nodes {
		nodes.add(n.Name, yes(n.Ready), yes(n.Schedulable), fmt.Sprintf("%d/%d", n.ReadyDisks, n.Disks),
			types.SizeText(n.StorageAvailable), types.SizeText(n.StorageMaximum), types.SizeText(n.StorageScheduled))
	}
	p.table(nodes)
	fmt.Fprintln(p.Out)
	volumes := table{{"VOLUME", "STATE", "ROBUSTNESS", "COPIES", "SIZE", "NODE"}}
	for _, v := range s.Volumes {
		good := "?"
		if v.GoodCopies != nil {
			good = strconv.Itoa(*v.GoodCopies)
		}
		volumes.add(v.Name, string(v.State), string(v.Robustness), fmt.Sprintf("%s/%d", good, v.Copies), types.SizeText(v.Size), v.Node)
	}
	p.table(volumes)
	fmt.Fprintln(p.Out)
	p.summary(s.Findings, s.Unseen)
	p.unseen(s.Unseen)
}

// summary prints a line for each error and warning, and the number of findings that are only for information.
func (p Printer) summary(found []explain.Finding, unseen []string) {
	information := 0
	problems := table{{"SEVERITY", "PROBLEM"}}
	for _, f := range found {
		if f.Severity == explain.Info {
			information++
			continue
		}
		problems.add(string(f.Severity), sentence(f))
	}
	switch {
	case len(found) == 0 && len(unseen) > 0:
		fmt.Fprintln(p.Out, "No problems found in the objects that your account may read.")
	case len(found) == 0:
		fmt.Fprintln(p.Out, "No problems found.")
	case len(problems) == 1:
		p.hang("", fmt.Sprintf("No errors, no warnings. For information only: %d (kubectl longhorn explain).", information))
	default:
		p.table(problems)
		fmt.Fprintln(p.Out)
		p.hang("", "For causes and next steps: kubectl longhorn explain, or kubectl longhorn explain NAME")
		p.hang("", fmt.Sprintf("For information only: %d", information))
	}
}

// sentence returns the problem of a finding in one sentence that names its object.
func sentence(f explain.Finding) string {
	words := strings.FieldsFunc(f.What, func(r rune) bool { return strings.ContainsRune(" :,;()\"'", r) })
	namesNode := f.Object.Kind != explain.KindDisk || slices.Contains(words, f.Object.Node)
	if slices.Contains(words, f.Object.Name) && namesNode {
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

// Findings prints the findings about one object, each with its cause and the next steps.
func (p Printer) Findings(about string, found []explain.Finding, unseen []string) {
	switch {
	case len(found) == 0 && len(unseen) > 0:
		p.hang("", about+": no problems found in the objects that your account may read.")
	case len(found) == 0:
		p.hang("", about+": no problems found.")
	}
	for i, f := range found {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		p.finding(f)
	}
	p.unseen(unseen)
}

// finding prints a finding, its cause and the next steps.
func (p Printer) finding(f explain.Finding) {
	p.hang(string(f.Severity)+"  ", fmt.Sprintf("%s: %s.", f.Object, f.What))
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
