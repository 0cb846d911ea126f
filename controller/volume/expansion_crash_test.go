package volume

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// growing is a volume with an expansion that the test drives one write at a time. Only its objects, and the data
// plane's data on its disks, outlive a step.
type growing struct {
	in    Input
	disks map[string]longhorn.Bytes // the durable size of each replica
	seen  longhorn.Bytes            // the largest size that the engine has ever offered
}

// write plans for the recorded state and carries out the first n writes of the plan, in the order of apply.
func (g *growing) write(n int) {
	p := plan(g.in)
	for _, u := range p.UpdateReplicas {
		for i, r := range g.in.Replicas {
			if n > 0 && r.Name == u.Name {
				g.in.Replicas[i].Spec = u.Spec
				n--
			}
		}
	}
	if p.UpdateEngine != nil && n > 0 {
		g.in.Engine.Spec = p.UpdateEngine.Spec
		n--
	}
	if n > 0 {
		g.in.Volume.Status = p.Status
	}
}

// nodes makes the data plane do what the specs request: one replica, or the engine.
func (g *growing) nodes(t *testing.T, which string) {
	e := g.in.Engine
	for _, r := range g.in.Replicas {
		if r.Name == which {
			g.disks[r.Name] = max(g.disks[r.Name], r.Spec.VolumeSize)
			r.Status.CurrentSize = g.disks[r.Name]
		}
	}
	if which == "engine" {
		for name, has := range g.disks {
			require.GreaterOrEqual(t, has, e.Spec.VolumeSize, "the engine is asked for more than %s has", name)
		}
		e.Status.CurrentSize = max(e.Status.CurrentSize, e.Spec.VolumeSize)
		require.GreaterOrEqual(t, e.Status.CurrentSize, g.seen, "users saw more before")
		g.seen = e.Status.CurrentSize
	}
}

// forget drops the fields, as another release does that does not know them.
func (g *growing) forget() {
	g.in.Volume.Status.Size, g.in.Volume.Status.ExpansionRequired = 0, false
	for _, r := range g.in.Replicas {
		r.Status.CurrentSize = 0
	}
}

// restart stops the engine and starts it again, with the size that a start gives it.
func (g *growing) restart() {
	g.in.Engine.Spec.VolumeSize = startedEngine(g.in).Spec.VolumeSize
	g.in.Engine.Status.CurrentSize = g.in.Engine.Spec.VolumeSize
}

// After a crash between any two writes, the engine offers the old size or the new one. It never offers more than a
// replica has, and never less than before. At the end it offers the new size.
func TestExpansionIsCarriedOnAfterACrashAnywhere(t *testing.T) {
	const two = 2 * gib
	for _, disturb := range []string{"nothing", "engine restarts", "fields are forgotten"} {
		for at := range 8 {
			for writes := range 4 {
				t.Run(fmt.Sprintf("%s after step %d and %d writes", disturb, at, writes), func(t *testing.T) {
					g := &growing{in: growsTo(two, 0, able(served(2, member, member))), disks: map[string]longhorn.Bytes{"r1": gib, "r2": gib}, seen: gib}
					order := []string{"r2", "engine", "r1", "engine"}
					for step := range 24 {
						if step == at {
							g.write(writes)
							switch disturb {
							case "engine restarts":
								g.restart()
							case "fields are forgotten":
								g.forget()
							}
						} else {
							g.write(9)
						}
						g.nodes(t, order[step%len(order)])
						require.Contains(t, []longhorn.Bytes{gib, two}, g.in.Engine.Spec.VolumeSize)
					}
					require.EqualValues(t, two, g.in.Engine.Status.CurrentSize)
					require.EqualValues(t, two, g.in.Volume.Status.Size)
					require.False(t, g.in.Volume.Status.ExpansionRequired)
				})
			}
		}
	}
}
