package inspect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestATextIsBrokenAtSpaces(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		width      int
		want       []string
	}{
		{"it fits → one line", "the node is down", 20, []string{"the node is down"}},
		{"it fits exactly → one line", "12345678901234567890", 20, []string{"12345678901234567890"}},
		{"too long → the next word is on the next line", "the node does not answer", 20, []string{"the node does not", "answer"}},
		{"a long word → it stays whole", "volume pvc-5b0c2a9a-1111-2222 is faulted", 20, []string{"volume", "pvc-5b0c2a9a-1111-2222", "is faulted"}},
		{"letters of two bytes → columns are counted", "é é é é é é é é é é é", 20, []string{"é é é é é é é é é é", "é"}},
		{"two lines → both", "a\nb", 20, []string{"a", "b"}},
		{"no room → some columns all the same", "the node does not answer", 1, []string{"the node does not", "answer"}},
		{"empty → an empty line", "", 20, []string{""}},
	} {
		assert.Equal(t, tc.want, wrap(tc.text, tc.width), tc.name)
	}
}

func TestALineIsFoldedBelowItsLastColumn(t *testing.T) {
	for _, tc := range []struct{ name, line, want string }{
		{"a flag → below its usage", "   --file string  the file to create, which must not exist", "   --file string  the file to create,\n                  which must not exist"},
		{"a sentence → from the start", "the file that is to be created must not exist yet", "the file that is to be created must not\nexist yet"},
		{"a short line → as it is", "   --help  show help", "   --help  show help"},
		{"no room below the column → as it is", "   a-very-long-name-of-a-flag  the file to create", "   a-very-long-name-of-a-flag  the file to create"},
	} {
		assert.Equal(t, tc.want, Fold(tc.line, 40), tc.name)
	}
}

func TestATableFits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		width int
		table table
		want  string
	}{
		{"there is room → wide gaps", 40, table{{"NODE", "READY", "DISKS"}, {"n1", "yes", "1"}}, "NODE   READY   DISKS\nn1     yes     1\n"},
		{"too wide → narrow gaps", 19, table{{"NODE", "READY", "DISKS"}, {"n1", "yes", "1"}}, "NODE  READY  DISKS\nn1    yes    1\n"},
		{"still too wide → the smallest gaps", 17, table{{"NODE", "READY", "DISKS"}, {"n1", "yes", "1"}}, "NODE READY DISKS\nn1   yes   1\n"},
		{"a long text → it is broken", 40, table{{"SEVERITY", "PROBLEM"}, {"error", "the node does not answer its kubelet"}}, "SEVERITY  PROBLEM\nerror     the node does not answer its\n          kubelet\n"},
		{"a long name → on a line of its own", 20, table{{"VOLUME", "NODE"}, {"pvc-1234567890", "node-1"}, {"pvc-2", "n2"}}, "VOLUME        NODE\npvc-1234567890\n              node-1\npvc-2         n2\n"},
		{"the last cell is empty → no spaces at the end", 40, table{{"VOLUME", "NODE"}, {"v", ""}}, "VOLUME   NODE\nv\n"},
	} {
		var out strings.Builder
		Printer{&out, tc.width}.table(tc.table)
		assert.Equal(t, tc.want, out.String(), tc.name)
	}
}

func TestTheTableOfNodesFitsANarrowTerminal(t *testing.T) {
	var out strings.Builder
	node := NodeStatus{Name: "guest-1", Ready: true, Schedulable: true, Disks: 1, ReadyDisks: 1, StorageMaximum: 8353918976, StorageAvailable: 8353918976, StorageScheduled: 1 << 30}
	Printer{&out, 60}.Status(Status{Nodes: []NodeStatus{node}})
	assert.Equal(t, []string{
		"NODE    READY SCHEDULABLE DISKS FREE     SIZE     PROMISED",
		"guest-1 yes   yes         1/1   7.78 GiB 7.78 GiB 1 GiB",
	}, strings.Split(out.String(), "\n")[:2])
}

// TestOutputsFit prints objects with the longest usual names.
func TestOutputsFit(t *testing.T) {
	volume, node := "pvc-5b0c2a9a-7c1e-4b0f-9d55-0b7f7a1f5d11", "ip-10-0-12-34.eu-central-1.compute.internal"
	good := 2
	why := "replica " + volume + "-r-a88c4051: its node " + node + " is down; if it does not come back, another replica is created in 9m24s (replica-replenishment-wait-interval)"
	found := []explain.Finding{
		{
			Object: explain.Object{Kind: explain.KindVolume, Name: volume}, Severity: explain.Warning, Reason: "Degraded",
			What: "volume " + volume + " has 2 of 3 healthy replicas", Why: []string{why},
			Next: []explain.Step{{Text: "Wait if a rebuild runs or is due; otherwise fix what the lines above name, and see how far each rebuild has come", Command: "kubectl get lhv"}},
		},
		{Object: explain.Object{Kind: explain.KindDisk, Name: "default-disk-1", Node: node}, Severity: explain.Broken, What: "the state of disk default-disk-1 is unknown: node " + node + " is not ready"},
	}
	for _, width := range []int{80, DefaultWidth} {
		var out strings.Builder
		p := Printer{&out, width}
		s := &explain.Snapshot{Volumes: []*longhorn.Volume{claimedVolume(volume, "data-of-postgres-0")}, Unseen: []string{explain.ResourceKubeAttachments}}
		p.Findings(s, "volume "+volume, found)
		p.Status(Status{
			Nodes:    []NodeStatus{{Name: node, Ready: true, Disks: 10, StorageMaximum: 1 << 50, StorageAvailable: 1<<50 - 1, StorageScheduled: 1<<50 - 1}},
			Volumes:  []VolumeStatus{{Name: volume, State: "detaching", Robustness: "degraded", Node: node, Size: 1<<40 + 1, GoodCopies: &good, Copies: 3}},
			Findings: found, Causes: []explain.Cause{{Finding: found[1], Consequences: found[:1]}}, Unseen: []string{explain.ResourceKubeAttachments},
		})
		p.Checks([]Check{{Name: types.ConditionMountPropagation, Severity: explain.Warning, Message: why, Next: []explain.Step{{Text: why}}}})
		for _, line := range strings.Split(out.String(), "\n") {
			if n := len([]rune(line)); n > width {
				t.Errorf("a line has %d of %d columns: %s", n, width, line)
			}
		}
		assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(why), " "), "words are lost")
	}
}

func TestAProblemNamesItsObjectOnce(t *testing.T) {
	for _, tc := range []struct {
		object     explain.Object
		what, want string
	}{
		{explain.Object{Kind: explain.KindVolume, Name: "v"}, "volume v is faulted", "volume v is faulted"},
		{explain.Object{Kind: explain.KindVolume, Name: "v"}, "the device moved", "volume v: the device moved"},
		{explain.Object{Kind: explain.KindDisk, Name: "d", Node: "n1"}, "disk d of node n1: read-only", "disk d of node n1: read-only"},
		{explain.Object{Kind: explain.KindDisk, Name: "d", Node: "n1"}, "disk d is read-only", "disk d on node n1: disk d is read-only"},
		{explain.Object{Kind: explain.KindReplica, Name: "v-r-1", Node: "n1"}, "replica v-r-1 is lost", "replica v-r-1 is lost"},
	} {
		assert.Equal(t, tc.want, sentence(explain.Finding{Object: tc.object, What: tc.what}))
	}
}
