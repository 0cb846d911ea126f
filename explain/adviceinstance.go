package explain

import "github.com/longhorn-lep/longhorn-manager/types"

// Reasons of an engine's InstanceCreation that the data plane reports; dataplane/engine/state.go documents them.
const (
	engineNoMembers      = "NoMembers"
	engineMemberMissing  = "MemberMissing"
	engineMemberMismatch = "MemberMismatch"
	engineRolledBack     = "RolledBack"
	engineNotEmpty       = "NotEmpty"
	engineFenced         = "Fenced"
	engineMemberFailed   = "MemberFailed"
	engineResyncFailed   = "ResyncFailed"
	engineWritesLost     = "WritesLost"
	engineFrontendFailed = "FrontendFailed"
	engineInterrupted    = "Interrupted"
	engineMismatch       = "SnapshotMismatch"
	engineLineFailed     = "LineFailed"
)

var (
	keyGone = Step{"Restore the Secret from a backup. Without it no engine can prove to the replicas that it may write", "kubectl -n {ns} get secret {volume}-data-plane"}
	itself  = Step{"No action needed: retried automatically", ""}
	asNode  = Step{"Explain the node", "kubectl longhorn explain node {node}"}
	dpLog   = Step{"See the log of the node's data plane", "kubectl -n {ns} logs {im} --tail=100"}
	older   = Step{"The cluster's record is older than the data, for example after a restore of etcd: read docs/dataplane/OPERATIONS.md, \"When the cluster's record is older than the data\", before you change anything", ""}
)

// engineAdvice is for the conditions of an engine.
var engineAdvice = map[cause]advice{
	{KindEngine, types.ConditionInstanceCreation, types.ReasonKeyMissing}:     {Broken, "the engine of volume {volume} cannot start: the Secret with the volume's key is gone", []Step{keyGone}, false},
	{KindEngine, types.ConditionInstanceCreation, types.ReasonEngineGone}:     {Warning, "the engine of volume {volume} was lost with its process, and is started again", []Step{itself, dpLog}, false},
	{KindEngine, types.ConditionInstanceCreation, types.ReasonEngineSucceeds}: {Info, "the process of the engine of volume {volume} has exited; its device is kept, and the next engine takes it over", []Step{itself}, false},
	{KindEngine, types.ConditionInstanceCreation, types.ReasonEngineNodeDown}: {Warning, "the engine of volume {volume} is assumed to be stopped because its node did not answer", []Step{asNode}, false},
	{KindEngine, types.ConditionInstanceCreation, types.ReasonTimedOut}:       {Warning, "the instance manager of node {node} did not answer in time for the engine of volume {volume}", []Step{asNode, dpLog}, false},
	{KindEngine, types.ConditionInstanceCreation, engineNoMembers}:            {Broken, "the engine of volume {volume} has no replica to start with", []Step{seeCopies}, false},
	{KindEngine, types.ConditionInstanceCreation, engineMemberMissing}:        {Broken, "the engine of volume {volume} could not open any replica that has all its data", []Step{bringBack, seeCopies}, false},
	{KindEngine, types.ConditionInstanceCreation, engineMemberMismatch}:       {Broken, "the engine of volume {volume} found a replica of another identity or size", []Step{seeCopies, dpLog}, false},
	{KindEngine, types.ConditionInstanceCreation, engineRolledBack}:           {Broken, "the engine of volume {volume} does not start: a replica shows a newer epoch than the Engine object", []Step{older}, false},
	{KindEngine, types.ConditionInstanceCreation, engineNotEmpty}:             {Broken, "the engine of volume {volume} does not start: a replica of a new volume holds data", []Step{older}, false},
	{KindEngine, types.ConditionInstanceCreation, engineFenced}:               {Warning, "the engine of volume {volume} was fenced by a later start", []Step{itself}, false},
	{KindEngine, types.ConditionInstanceCreation, engineMemberFailed}:         {Broken, "the engine of volume {volume} lost its last replica while it ran", []Step{bringBack, seeCopies}, false},
	{KindEngine, types.ConditionInstanceCreation, engineResyncFailed}:         {Broken, "the engine of volume {volume} could not equalize the copies at its start", []Step{seeCopies, dpLog}, false},
	{KindEngine, types.ConditionInstanceCreation, engineWritesLost}: {Broken, "the users of the device of volume {volume} get errors: writes were lost while its process was replaced", []Step{
		{"The volume restarts automatically, with a new device: restart the pods that use it", ""}, dpLog,
	}, false},
	{KindEngine, types.ConditionInstanceCreation, engineFrontendFailed}: {Broken, "the block device of volume {volume} could not be created on node {node}", []Step{
		{"Check on the node itself what it lacks", "kubectl -n {ns} exec {daemon} -- longhorn-manager doctor"}, dpLog,
	}, false},
	{KindEngine, types.ConditionInstanceCreation, engineMismatch}:            {Broken, "the engine of volume {volume} does not start: the record of its snapshots and its replicas have different snapshots with one number", []Step{older}, false},
	{KindEngine, types.ConditionInstanceCreation, engineLineFailed}:          {Broken, "the engine of volume {volume} does not start: no replica could follow the record of its snapshots", []Step{seeCopies, dpLog}, false},
	{KindEngine, types.ConditionInstanceCreation, engineInterrupted}:         {Info, "a start of the engine of volume {volume} was interrupted", []Step{itself}, false},
	{KindEngine, types.ConditionEpochRefused, types.ReasonRulesOfMembership}: {Broken, "the engine of volume {volume} proposes members that the rules of membership forbid; nothing is recorded", []Step{older, dpLog}, false},
	{KindEngine, types.ConditionDeviceInUse, ""}: {Warning, "the device of volume {volume} is in use, so its engine cannot stop", []Step{
		{"Stop the processes that the lines above name, on node {node}", "lsof /dev/longhorn/{volume}; findmnt -S /dev/longhorn/{volume}"},
	}, false},
}

// replicaAdvice is for the conditions of a replica.
var replicaAdvice = map[cause]advice{
	{KindReplica, types.ConditionInstanceCreation, types.ReasonKeyMissing}: {Broken, "replica {replica} cannot start: the Secret with the volume's key is gone", []Step{keyGone}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonNodeGone}: {Warning, "replica {replica} is lost: its node {node} was removed from Kubernetes", []Step{
		{"No action needed if other replicas are healthy: a new replica is created. If this was the last healthy replica, add the node with its disks to the cluster again", "kubectl longhorn explain volume {volume}"},
	}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDiskNotFound}: {Warning, "replica {replica} is on a disk that is unknown to node {node}", []Step{
		{"Add the disk, with its data, to the node again", "kubectl -n {ns} edit lhn {node}"}, asNode,
	}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDiskNotReady}:      {Warning, "replica {replica} waits for its disk, which is not ready", []Step{asNode}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDiskUnmounted}:     {Warning, "the disk of replica {replica} is no longer mounted", []Step{mountDisk, asNode}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDiskReplaced}:      {Warning, "another file system is mounted in place of the disk of replica {replica}", []Step{mountDisk, asNode}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDiskMissing}:       {Warning, "the path of the disk of replica {replica} has no UUID file: its file system is probably not mounted", []Step{mountDisk, asNode}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDiskMismatch}:      {Warning, "at the path of the disk of replica {replica} is another disk", []Step{mountDisk, asNode}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonReplicaMissing}:    {Warning, "the directory of replica {replica} is not on its disk", []Step{lostCopy}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDataDeleted}:       {Warning, "the data of replica {replica} was deleted, moved away or replaced", []Step{lostCopy}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDataMissing}:       {Warning, "the data file of replica {replica} is missing", []Step{lostCopy}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonDiskNotResponding}: {Broken, "the disk of replica {replica} hangs: it neither answers nor fails", []Step{kernelLog, asNode}, true},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonLocked}: {Warning, "another process has the directory of replica {replica} open; usually a process that was killed and waits for its disk", []Step{
		{"On the node, see which processes wait for a disk", "ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /D/'"}, kernelLog,
	}, false},
	{KindReplica, types.ConditionInstanceCreation, types.ReasonTimedOut}: {Warning, "the instance manager of node {node} did not answer in time for replica {replica}", []Step{asNode, dpLog}, false},
	{KindReplica, types.ConditionInstanceCreation, engineFenced}:         {Info, "replica {replica} has admitted a later engine", []Step{itself}, false},
	{KindReplica, types.ConditionRemovalRefused, ""}: {Warning, "replica {replica} is being deleted, but its data cannot be removed", []Step{
		{"Fix the problem that the lines above name; the manager then retries automatically", "kubectl -n {ns} describe lhr {replica}"}, asNode,
	}, false},
	{KindReplica, types.ConditionRemovable, types.ReasonLastReplica}: {Warning, "replica {replica} is being deleted, but is retained: it is the last healthy replica of volume {volume}", []Step{
		{"Wait until another replica is healthy, or delete the volume if its data is not needed", "kubectl longhorn explain volume {volume}"},
	}, false},
}

var lostCopy = Step{"If it was moved, move it back and wait. Otherwise no action is needed while another replica is healthy: this replica is rebuilt", "kubectl longhorn explain volume {volume}"}
