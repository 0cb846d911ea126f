package inspect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

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

// Print writes the overview as tables: nodes, volumes, and problems.
func (s Status) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tREADY\tSCHEDULABLE\tDISKS\tFREE\tSIZE\tPROMISED")
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\n", n.Name, yes(n.Ready), yes(n.Schedulable), n.ReadyDisks, n.Disks,
			types.SizeText(n.StorageAvailable), types.SizeText(n.StorageMaximum), types.SizeText(n.StorageScheduled))
	}
	fmt.Fprintln(w, "\nVOLUME\tSTATE\tROBUSTNESS\tCOPIES\tSIZE\tNODE")
	for _, v := range s.Volumes {
		good := "?"
		if v.GoodCopies != nil {
			good = strconv.Itoa(*v.GoodCopies)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s/%d\t%s\t%s\n", v.Name, v.State, v.Robustness, good, v.Copies, types.SizeText(v.Size), v.Node)
	}
	fmt.Fprintln(w)
	printSummary(w, s.Findings, s.Unseen)
	printUnseen(w, s.Unseen)
	return w.Flush()
}

// printSummary prints a line for each error and warning, and the number of findings that are only for information.
func printSummary(w io.Writer, found []explain.Finding, unseen []string) {
	information := 0
	header := "SEVERITY\tOBJECT\tWHAT\n"
	for _, f := range found {
		if f.Severity == explain.Info {
			information++
			continue
		}
		fmt.Fprintf(w, "%s%s\t%s\t%s\n", header, f.Severity, f.Object, f.What)
		header = ""
	}
	switch {
	case len(found) == 0 && len(unseen) > 0:
		fmt.Fprintln(w, "No problems found in the objects that your account may read.")
	case len(found) == 0:
		fmt.Fprintln(w, "No problems found.")
	case header != "":
		fmt.Fprintf(w, "No errors, no warnings; for information: %d (see explain, or -o json).\n", information)
	default:
		fmt.Fprintf(w, "\nFor the cause and the next steps: explain volume|node|disk NAME. For information only: %d.\n", information)
	}
}

func printUnseen(w io.Writer, unseen []string) {
	for _, resource := range unseen {
		fmt.Fprintf(w, "Your account may not read %s: problems that only these show are not listed.\n", resource)
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// PrintFindings prints the findings about one object, each with its cause and the next steps.
func PrintFindings(out io.Writer, about string, found []explain.Finding, unseen []string) {
	switch {
	case len(found) == 0 && len(unseen) > 0:
		fmt.Fprintf(out, "%s: no problems found in the objects that your account may read.\n", about)
	case len(found) == 0:
		fmt.Fprintf(out, "%s: no problems found.\n", about)
	}
	for i, f := range found {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s  %s: %s.\n", f.Severity, f.Object, f.What)
		for _, why := range f.Why {
			fmt.Fprintf(out, "  why   %s\n", why)
		}
		for _, step := range f.Next {
			fmt.Fprintf(out, "  next  %s.\n", step.Text)
			if step.Command != "" {
				fmt.Fprintf(out, "          %s\n", step.Command)
			}
		}
	}
	printUnseen(out, unseen)
}
