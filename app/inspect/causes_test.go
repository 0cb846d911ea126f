package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func finding(severity explain.Severity, kind explain.Kind, name string) explain.Finding {
	return explain.Finding{
		Object: explain.Object{Kind: kind, Name: name}, Severity: severity, Reason: "R", What: string(kind) + " " + name + " has a problem",
		Why: []string{"because"}, Next: []explain.Step{{Text: "Do this", Command: "do it"}},
	}
}

// claimedVolume is a volume of a claim in namespace shop.
func claimedVolume(name, claim string) *longhorn.Volume {
	return build.Volume(name, func(v *longhorn.Volume) {
		v.Status.KubernetesStatus = longhorn.KubernetesStatus{PVName: name, PVStatus: "Bound", Namespace: "shop", PVCName: claim}
	})
}

func TestTheWorstCauseIsPrintedWithWhatFollows(t *testing.T) {
	s := &explain.Snapshot{Volumes: []*longhorn.Volume{claimedVolume("v1", "data")}}
	node := explain.Cause{Finding: finding(explain.Broken, explain.KindNode, "n1")}
	for i := range 7 {
		node.Consequences = append(node.Consequences, finding(explain.Warning, explain.KindVolume, fmt.Sprintf("v%d", i)))
	}
	node.Consequences = append(node.Consequences, finding(explain.Info, explain.KindVolume, "v0"))
	setting := explain.Cause{Finding: finding(explain.Warning, explain.KindSetting, "s")}
	info := explain.Cause{Finding: finding(explain.Info, explain.KindNode, "n2")}
	more := "\nMore about one object: kubectl longhorn explain NAME\nAll problems in one line each: kubectl longhorn status\n"
	for _, tc := range []struct {
		name   string
		causes []explain.Cause
		want   string
	}{
		{"nothing → so", nil, "the cluster: no problems found.\n"},
		{"one problem → it", []explain.Cause{setting}, `The cluster has 1 warning:

warning  setting s: setting s has a problem.
  why   because
  next  Do this.
          do it
` + more},
		{"several causes → the worst in full, the others in one line", []explain.Cause{node, setting, info}, `The cluster has 1 error and 8 warnings, probably with 2 causes. The worst:

error  node n1: node n1 has a problem.
  why   because
  next  Do this.
          do it
  then  Problems that probably follow from it: volume v0, volume shop/data (v1), volume v2, volume v3, volume v4, and 2 more.

SEVERITY   PROBLEM
warning    setting s has a problem
` + more + "For information only: 1 (kubectl longhorn explain -o json)\n"},
		{"only information → all of it", []explain.Cause{info}, `No errors and no warnings. For information only:

SEVERITY   PROBLEM
info       node n2 has a problem
` + more},
	} {
		var out strings.Builder
		Printer{&out, 1000}.Causes(s, tc.causes)
		assert.Equal(t, tc.want, out.String(), tc.name)
	}
	var many []explain.Cause
	for range maxInformation + 3 {
		many = append(many, info)
	}
	var out strings.Builder
	Printer{&out, DefaultWidth}.Causes(s, many)
	assert.Contains(t, out.String(), "and 3 more\n")
	out.Reset()
	Printer{&out, DefaultWidth}.Causes(&explain.Snapshot{Unseen: []string{"pods"}}, nil)
	assert.Equal(t, "the cluster: no problems found in the objects that your account may read.\nYour account may not read pods: problems that only these show are not listed.\n", out.String())
}
