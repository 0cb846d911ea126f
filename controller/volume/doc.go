// Package volume turns a Volume into its children, keeps as many good replicas as are asked
// for, and reports how they fare. It runs on the leader, over the whole cluster.
//
// It owns: the children of a volume (Engine, Replicas, VolumeAttachment, the key of its
// data plane), their specs, where replicas are placed, and Volume.status. It starts
// replicas before the engine and stops the engine before the replicas.
//
//	Volume.spec.nodeID    Volume.status.state    Engine, Replicas
//	------------------    -------------------    ----------------
//	""                    detached               stopped
//	node-1                attaching              replicas running, then engine running
//	node-1                attached               running; lost replicas rebuilt or made anew
//	"" or another         detaching              engine stopped, then replicas stopped
//	node-1 again          attaching              the stop is taken back, if node-1 refused it: the device is in use
//
// Pure functions decide:
//
//	drive       which step comes next          robustness  how good the replicas are
//	start       with which replicas            events      what people are told of it
//	fence       leaving a node that is down    deletion    the end of the volume
//	expansion   what grows next, and what holds it up
//
// The replicas of a volume that is served come from one target (target.go):
//
//	copies      what is known of each replica  place       where another one is put
//	record      what is written down of it     rebuild     which one is rebuilt, and when
//	policies    which are wanted, and why      step        the next step towards the target
//	balance     how evenly they lie
//
// A placed replica that is not in the cache yet takes its room all the same (reserve.go), and a
// rebuild that was begun counts before the cache shows it (turns.go).
//
// It must not know how an instance is run, nor who wants the volume attached: only the
// attachment controller writes Volume.spec.nodeID.
package volume
