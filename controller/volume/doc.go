// Package volume creates the child objects of a Volume, keeps as many good replicas as the volume requests, and
// reports their state. It runs on the leader, for the whole cluster.
//
// It owns the children of a volume (Engine, Replicas, VolumeAttachment, and the key of its data plane), their
// specs, the placement of replicas, and Volume.status. It starts replicas before the engine, and stops the engine
// before the replicas.
//
//	Volume.spec.nodeID    Volume.status.state    Engine, Replicas
//	------------------    -------------------    ----------------
//	""                    detached               stopped
//	node-1                attaching              replicas running, then engine running
//	node-1                attached               running; lost replicas are rebuilt or replaced
//	"" or another         detaching              engine stopped, then replicas stopped
//	node-1 again          attaching              the stop is canceled, if node-1 refused it: the device is in use
//
// Pure functions decide:
//
//	drive       which step comes next          robustness  how many replicas are good
//	start       with which replicas            events      which Events are recorded
//	fence       leaving a node that is down    deletion    how the volume is deleted
//	expansion   what grows next, and what blocks it
//
// Package copies, below this one, decides which replicas a volume has and should have. Package children builds the
// objects of a volume. Both are pure.
//
// This package keeps what a decision needs until the cache shows it. A placed replica reserves its room before the
// cache shows the replica (reserve.go). A rebuild that this process started counts before the cache shows the rebuild
// (turns.go).
//
// The package must not know how an instance is run, nor who requests that the volume is attached: only the
// attachment controller writes Volume.spec.nodeID.
package volume
