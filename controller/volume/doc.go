// Package volume turns a Volume into its children and tells how they fare. It runs
// on the leader, over the whole cluster.
//
// It owns: the children of a volume (Engine, Replicas, VolumeAttachment, the key of
// its data plane), their specs, where replicas are placed, and Volume.status. It
// starts replicas before the engine and stops the engine before the replicas.
//
//	Volume.spec.nodeID    Volume.status.state    Engine, Replicas
//	------------------    -------------------    ----------------
//	""                    detached               stopped
//	node-1                attaching              replicas running, then engine running
//	node-1                attached               all running
//	"" or another         detaching              engine stopped, then replicas stopped
//
// It must not know how an instance is run, nor who wants the volume attached: the
// attachment controller alone writes Volume.spec.nodeID.
package volume
