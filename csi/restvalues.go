package csi

import v1 "github.com/longhorn-lep/longhorn-manager/api/v1"

// Values of the manager's REST API, as they are sent.
const (
	stateCreating  = "creating"
	stateAttaching = "attaching"
	stateAttached  = "attached"
	stateDetached  = "detached"
	stateDetaching = "detaching"
	stateDeleting  = "deleting"

	robustnessFaulted = "faulted"

	accessModeRWO  = "rwo"
	accessModeRWOP = "rwop"
	// accessModeRWX: the volume is shared. A share manager serves it over NFS to any number of nodes.
	accessModeRWX = "rwx"

	localityStrict = "strict-local"

	conditionTrue = "True"
	// conditionReady is the condition of a snapshot that can be read.
	conditionReady = "Ready"

	// attacherType marks this driver's tickets.
	attacherType = v1.AttacherTypeCSI
	// snapshotType marks the ticket that attaches a volume while it takes a snapshot.
	snapshotType = v1.AttacherTypeSnapshot
)
