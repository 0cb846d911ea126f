package drain

import (
	"fmt"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// manyVolumes are attached volumes with three copies each, on nodes in turn.
func manyVolumes(volumes, nodes int) Input {
	in := Input{Policy: settings.DrainBlockIfLastReplica, Now: now}
	name := func(i int) string { return fmt.Sprintf("n%02d", i%nodes) }
	for i := range nodes {
		in.Nodes = append(in.Nodes, build.ReadyNode(name(i), "disk-"+name(i)))
		in.KubeNodes = append(in.KubeNodes, build.KubeNode(name(i)))
		in.Managers = append(in.Managers, build.RunningInstanceManager(name(i), "10.0.0.1", "process"))
	}
	for i := range volumes {
		attached(fmt.Sprintf("v%d", i), name(i), name(i), name(i+1), name(i+2))(&in)
	}
	return in
}

// BenchmarkPlan: the controller plans after each event of a cluster, so the cost of a plan must not grow with the
// product of engines, replicas and nodes.
func BenchmarkPlan(b *testing.B) {
	in := manyVolumes(1000, 50)
	in.Budgets = plan(in).Create
	for b.Loop() {
		plan(in)
	}
}
