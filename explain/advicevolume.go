package explain

import "github.com/longhorn-lep/longhorn-manager/types"

var (
	seeCopies  = Step{"See the copies and where they are", "kubectl -n {ns} get lhr -l longhornvolume={volume} -o wide"}
	attachOnce = Step{"Use the volume in a pod, or attach it by hand with REST (docs/FEATURES.md, section Evicting): replicas are copied by its engine alone", ""}
	bringBack  = Step{"Bring back the node or the disk that the message names: the volume starts by itself as soon as one copy that holds all its data can be opened", "kubectl longhorn explain node {copynode}"}
	seeLimits  = "kubectl -n {ns} get resourcequotas,limitranges; kubectl get validatingadmissionpolicybindings,validatingwebhookconfigurations"
	seeEngine  = Step{"See what the engine says", "kubectl -n {ns} describe lhe {volume}-e-0"}
)

// volumeAdvice is of the conditions of a volume, without those of its expansion.
var volumeAdvice = map[cause]advice{
	{KindVolume, types.ConditionScheduled, types.ReasonReplicaSchedulingFailure}: {Warning, "volume {volume} has a replica without a place: no disk fits", []Step{
		{"Mend what the disks lack, by the lines above; a place is looked for again by itself", "kubectl longhorn status"},
	}, false},
	{KindVolume, types.ConditionScheduled, types.ReasonLocalReplicaSchedulingFailure}: {Info, "volume {volume} has no copy on node {node}, where it is used, and none can be placed there", []Step{
		{"Give that node room, by the lines above, or live with reads over the network", "kubectl longhorn explain node {node}"},
	}, false},
	{KindVolume, types.ConditionScheduled, types.ReasonEvictionFailed}: {Warning, "a replica of volume {volume} must leave its disk, and there is no place for another one", []Step{
		{"Make room on another disk, by the lines above, or take the eviction back", "kubectl -n {ns} get lhn"},
	}, false},
	{KindVolume, types.ConditionScheduled, types.ReasonLocalReplicaWaits}: {Info, "volume {volume} has no copy on node {node} yet: it moves to and fro, and gets one when it stays", []Step{
		{"Nothing is to be done", ""},
	}, true},
	{KindVolume, types.ConditionScheduled, types.ReasonPlacedWhenAttached}: {Info, "volume {volume} gets its replica on the node where it is attached first", []Step{
		{"Use the volume in a pod", ""},
	}, true},
	{KindVolume, types.ConditionScheduled, types.ReasonDegradedAvailability}: {Warning, "volume {volume} is used with fewer copies than asked for: the others have no place", []Step{
		{"Mend what the disks lack, by the lines above; the copies are made as soon as there is a place", "kubectl longhorn status"},
	}, true},

	{KindVolume, types.ConditionFaulted, types.ReasonReplicaMissing}: {Broken, "volume {volume} is faulted: no copy that holds all its data can be opened", []Step{bringBack, seeCopies}, false},
	{KindVolume, types.ConditionFaulted, types.ReasonReplicaFailed}:  {Broken, "volume {volume} is faulted: its replicas have failed", []Step{bringBack, seeCopies}, false},
	{KindVolume, types.ConditionFaulted, types.ReasonEngineFailed}: {Broken, "volume {volume} is faulted: its engine has stopped, and is tried again", []Step{
		seeEngine, {"See what the node's data plane lacks", "kubectl longhorn explain node {node}"},
	}, false},
	{KindVolume, types.ConditionFaulted, types.ReasonNotFenced}: {Broken, "volume {volume} cannot leave its node: an engine there may still write, and no copy can shut it out", []Step{
		{"Bring back one of the nodes with a copy, or the node where the volume was used", "kubectl longhorn explain node {node}"}, seeCopies,
	}, false},

	{KindVolume, types.ConditionAttaching, types.ReasonWaitingForReplicas}: {Info, "volume {volume} is being attached, and waits for its replicas", []Step{seeCopies}, false},
	{KindVolume, types.ConditionAttaching, types.ReasonWaitingForEngine}:   {Info, "volume {volume} is being attached, and waits for its engine", []Step{seeEngine}, false},
	{KindVolume, types.ConditionAttaching, types.ReasonWaitingForNode}: {Broken, "volume {volume} cannot be attached: its node does not answer", []Step{
		{"Explain the node. The pod may be moved to another node by deleting it", "kubectl longhorn explain node {node}"},
	}, false},
	{KindVolume, types.ConditionAttaching, types.ReasonStrictLocal}: {Broken, "volume {volume} is strict-local, and its data is on another node", []Step{
		{"Run the pod on the node that the message names, by its nodeSelector", "kubectl -n {ns} get lhr -l longhornvolume={volume}"},
		{"Or let the volume leave its node: while it is detached, make it best-effort", `kubectl -n {ns} patch lhv {volume} --type merge -p '{"spec":{"dataLocality":"best-effort"}}'`},
	}, false},
	{KindVolume, types.ConditionChildRefused, ""}: {Broken, "the API server refuses an object of volume {volume}: nothing goes on until it takes it", []Step{
		{"Change the quota, limit, policy or webhook that the message names; the request is retried automatically", seeLimits},
	}, false},
	{KindVolume, types.ConditionEvictionWaits, types.ReasonVolumeDetached}: {Warning, "replicas of volume {volume} are to leave their disks, and cannot while the volume is detached", []Step{attachOnce}, false},
	{KindVolume, types.ConditionCopiesMissing, types.ReasonVolumeDetached}: {Warning, "volume {volume} is detached with fewer good copies than asked for", []Step{attachOnce, seeCopies}, false},
	{KindVolume, types.ConditionSurplusReplicas, types.ReasonReplicaCountLowered}: {Info, "volume {volume} has more good replicas than asked for: the message names them, and when the manager removes the surplus", []Step{
		{"Delete the replica to give up, or wait", "kubectl -n {ns} delete lhr REPLICA"},
	}, false},
	{KindVolume, types.ConditionCopiesUnreachable, types.ReasonNodeDown}: {Broken, "volume {volume} cannot be served: all its good copies are on nodes that are down", []Step{
		{"Bring back the nodes that the message names: the volume starts by itself", "kubectl longhorn explain node {copynode}"}, seeCopies,
	}, false},
	{KindVolume, types.ConditionDeviceInUse, ""}: {Warning, "volume {volume} is to be detached, and its device is in use", []Step{
		{"End the processes that the message names, on the node", "lsof /dev/longhorn/{volume}; findmnt -S /dev/longhorn/{volume}"},
	}, false},
}

// expansionAdvice is of a volume's, and a replica's, expansion.
var expansionAdvice = map[cause]advice{
	{KindVolume, types.ConditionExpanded, types.ReasonSizeLimit}: {Warning, "volume {volume} cannot grow so far, and the expansion has not begun", []Step{takeBack, {"Copy the data to a new volume of the size that is needed", ""}}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonNodeCannotGrow}: {Warning, "volume {volume} waits to grow: a node's data plane is of an earlier release, or does not run", []Step{
		{"See what version each data plane has; the daemon replaces it when it can", "kubectl -n {ns} get lhim"}, takeBack,
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonNoRoomToGrow}: {Warning, "volume {volume} waits to grow: a disk with a replica has no room for it", []Step{
		{"Make room on that disk, or move the replica off it", "kubectl -n {ns} get lhr -l longhornvolume={volume}"}, takeBack,
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonReplicasGrow}: {Info, "volume {volume} is growing: its replicas get the size first", []Step{{"Wait; nothing is to be done", ""}}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonReplicaNotGrown}: {Warning, "volume {volume} is growing, and a replica cannot; after five minutes another one takes its place", []Step{
		seeCopies,
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonEngineExpands}: {Info, "volume {volume} is growing: its engine is asked to offer the size", []Step{{"Wait; nothing is to be done", ""}}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonEngineCannotGrow}: {Warning, "volume {volume} has grown, and its device cannot while it is attached", []Step{
		{"Detach the volume and attach it again: end its pod and start it again", "kubectl -n {ns} get lhim"},
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonEngineNotExpanded}: {Warning, "volume {volume} has grown, and its engine failed to offer the size; it is tried again", []Step{seeEngine}, false},
	{KindReplica, types.ConditionExpanded, types.ReasonReplicaNotGrown}: {Warning, "replica {replica} cannot grow", []Step{
		{"Make room on its disk", "kubectl longhorn explain node {node}"},
	}, false},
}

var takeBack = Step{"Or take the expansion back while it has not begun: give spec.size the value of status.size", "kubectl -n {ns} get lhv {volume} -o jsonpath='{.status.size}'"}

// ticketAdvice is of a wish to have a volume attached.
var ticketAdvice = map[cause]advice{
	{KindTicket, types.ConditionSatisfied, types.ReasonAttachedElsewhere}: {Warning, "volume {volume} cannot go to node {node} while it is attached to another one", []Step{
		{"See which pods use it. A pod of a node that is down must be deleted, or its node tainted node.kubernetes.io/out-of-service, before the volume is let go", "kubectl get volumeattachments.storage.k8s.io"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonAttachedIncompatibleFrontend}: {Warning, "volume {volume} is attached to node {node} by a person, without what this ticket needs", []Step{
		{"Detach what was attached by hand (REST: action=detach)", "kubectl -n {ns} get lhva {volume} -o yaml"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonWaitingForVolume}: {Info, "volume {volume} is on its way to node {node}", []Step{
		{"See the other lines about the volume; if there are none, wait", "kubectl -n {ns} describe lhv {volume}"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonWaitingForShare}: {Warning, "node {node} waits until volume {volume} is shared", []Step{
		{"See what its share manager says", "kubectl -n {ns} describe lhsm {volume}"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonClientsNotKnown}: {Warning, "node {node} waits until its daemon reports its addresses, to which the share of volume {volume} is limited", []Step{
		{"See why the daemon of the node does not run", "kubectl longhorn status"},
		{"Or name the networks of the nodes in setting rwx-volume-allowed-clients", "kubectl -n {ns} describe lhs rwx-volume-allowed-clients"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonStrictLocal}: {Broken, "volume {volume} cannot be attached to node {node}: it is strict-local, and its data is elsewhere", []Step{
		{"Run the pod on the node that the message names, by its nodeSelector", "kubectl -n {ns} get lhr -l longhornvolume={volume}"},
		{"Or let the volume leave its node: while it is detached, make it best-effort", `kubectl -n {ns} patch lhv {volume} --type merge -p '{"spec":{"dataLocality":"best-effort"}}'`},
	}, false},
	{KindTicket, types.ConditionSatisfied, ""}: {Warning, "volume {volume} cannot be attached to node {node} as it is", []Step{
		{"See the other lines about the volume", "kubectl longhorn explain volume {volume}"},
	}, false},
}
