// Package volume turns a Volume into its children, keeps as many good copies of its data
// as are asked for, and tells how they fare. It runs on the leader, over the whole cluster.
//
// It owns: the children of a volume (Engine, Replicas, VolumeAttachment, the key of its
// data plane), their specs, where replicas are placed, and Volume.status. It starts
// replicas before the engine and stops the engine before the replicas.
//
//	Volume.spec.nodeID    Volume.status.state    Engine, Replicas
//	------------------    -------------------    ----------------
//	""                    detached               stopped
//	node-1                attaching              replicas running, then engine running
//	node-1                attached               running; lost copies rebuilt or made anew
//	"" or another         detaching              engine stopped, then replicas stopped
//
// Each policy is a pure function in a file of its own:
//
//	drive       which step comes next          members    what the engine is asked to have
//	start       with which replicas            replenish  when another replica is made
//	fence       leaving a node that is down    cleanup    when one is given up
//	robustness  how good the copies are        deletion   the end of the volume
//
// It must not know how an instance is run, nor who wants the volume attached: the
// attachment controller alone writes Volume.spec.nodeID.
package volume
