package explain

import "github.com/longhorn-lep/longhorn-manager/types"

var (
	seeCopies  = Step{"See the replicas and where they are", "kubectl -n {ns} get lhr -l longhornvolume={volume} -o wide"}
	attachOnce = Step{"Use the volume in a pod, or attach it manually with REST (docs/FEATURES.md, section Evicting): only its engine can copy replicas", ""}
	bringBack  = Step{"Bring back {places}: the volume starts automatically as soon as one replica that has all its data can be opened", "kubectl longhorn explain node {copynode}"}
	seeLimits  = "kubectl -n {ns} get resourcequotas,limitranges; kubectl get validatingadmissionpolicybindings,validatingwebhookconfigurations"
	seeEngine  = Step{"See the engine's conditions and Events", "kubectl -n {ns} describe lhe {volume}-e-0"}
)

// volumeAdvice is for the conditions of a volume, except its expansion.
var volumeAdvice = map[cause]advice{
	{KindVolume, types.ConditionScheduled, types.ReasonReplicaSchedulingFailure}: {Warning, "volume {volume} has a replica without a place: no disk fits", []Step{
		{"Fix what the lines above say about the disks; placement is retried automatically", "kubectl longhorn status"},
	}, false},
	{KindVolume, types.ConditionScheduled, types.ReasonLocalReplicaSchedulingFailure}: {Info, "volume {volume} has no copy on node {node}, where it is used, and none can be placed there", []Step{
		{"Free space on that node, see the lines above, or accept reads over the network", "kubectl longhorn explain node {node}"},
	}, false},
	{KindVolume, types.ConditionScheduled, types.ReasonEvictionFailed}: {Warning, "a replica of volume {volume} must leave its disk, but there is no place for another replica", []Step{
		{"Free space on another disk, see the lines above, or cancel the eviction", "kubectl -n {ns} get lhn"},
	}, false},
	{KindVolume, types.ConditionScheduled, types.ReasonLocalReplicaWaits}: {Info, "volume {volume} has no copy on node {node} yet: it moves back and forth between nodes, and gets one when it stays", []Step{
		{"No action needed", ""},
	}, true},
	{KindVolume, types.ConditionScheduled, types.ReasonPlacedWhenAttached}: {Info, "volume {volume} gets its replica on the node where it is first attached", []Step{
		{"Use the volume in a pod", ""},
	}, true},
	{KindVolume, types.ConditionScheduled, types.ReasonDegradedAvailability}: {Warning, "volume {volume} has fewer replicas than requested: no disk fits the others", []Step{
		{"Fix what the lines above say about the disks; the copies are created as soon as there is a place", "kubectl longhorn status"},
	}, true},

	{KindVolume, types.ConditionFaulted, types.ReasonReplicaMissing}: {Broken, "volume {volume} is faulted: no replica that has all its data can be opened", []Step{bringBack, seeCopies}, false},
	{KindVolume, types.ConditionFaulted, types.ReasonReplicaFailed}:  {Broken, "volume {volume} is faulted: its replicas have failed", []Step{bringBack, seeCopies}, false},
	{KindVolume, types.ConditionFaulted, types.ReasonEngineFailed}: {Broken, "volume {volume} is faulted: its engine has stopped; the start is retried", []Step{
		seeEngine, {"See what the node's data plane lacks", "kubectl longhorn explain node {node}"},
	}, false},
	{KindVolume, types.ConditionFaulted, types.ReasonNotFenced}: {Broken, "volume {volume} cannot leave its node: an engine there may still write, and no copy is available to fence it", []Step{
		{"Bring back one of the nodes with a copy, or the node where the volume was used", "kubectl longhorn explain node {node}"}, seeCopies,
	}, false},

	{KindVolume, types.ConditionAttaching, types.ReasonWaitingForReplicas}: {Info, "volume {volume} is being attached, and waits for its replicas", []Step{seeCopies}, false},
	{KindVolume, types.ConditionAttaching, types.ReasonWaitingForEngine}:   {Info, "volume {volume} is being attached, and waits for its engine", []Step{seeEngine}, false},
	{KindVolume, types.ConditionAttaching, types.ReasonWaitingForNode}: {Broken, "volume {volume} cannot be attached: its node does not answer", []Step{
		{"Explain the node. To move the pod to another node, delete the pod", "kubectl longhorn explain node {node}"},
	}, false},
	{KindVolume, types.ConditionAttaching, types.ReasonStrictLocal}: {Broken, "volume {volume} is strict-local, and its data is on another node", []Step{
		{"Run the pod on the node that the lines above name, with its nodeSelector", "kubectl -n {ns} get lhr -l longhornvolume={volume}"},
		{"Or allow the volume to leave its node: change it to best-effort while it is detached", `kubectl -n {ns} patch lhv {volume} --type merge -p '{"spec":{"dataLocality":"best-effort"}}'`},
	}, false},
	{KindVolume, types.ConditionChildRefused, ""}: {Broken, "the API server refuses an object of volume {volume}: the volume waits until the API server accepts it", []Step{
		{"Change the quota, limit, policy or webhook that the lines above name; the request is retried automatically", seeLimits},
	}, false},
	{KindVolume, types.ConditionEvictionWaits, types.ReasonVolumeDetached}: {Warning, "replicas of volume {volume} are to be evicted from their disks, but cannot move while the volume is detached", []Step{attachOnce}, false},
	{KindVolume, types.ConditionCopiesMissing, types.ReasonVolumeDetached}: {Warning, "volume {volume} is detached and has fewer healthy replicas than requested", []Step{attachOnce, seeCopies}, false},
	{KindVolume, types.ConditionSurplusReplicas, types.ReasonReplicaCountLowered}: {Info, "volume {volume} has more healthy replicas than requested; the manager removes the surplus later", []Step{
		{"Delete one of the replicas that the lines above name, or wait", "kubectl -n {ns} delete lhr REPLICA"},
	}, false},
	{KindVolume, types.ConditionCopiesUnreachable, types.ReasonNodeDown}: {Broken, "volume {volume} cannot be served: all its healthy replicas are on nodes that are down", []Step{
		{"Bring back {places}: the volume starts automatically", "kubectl longhorn explain node {copynode}"}, seeCopies,
	}, false},
	{KindVolume, types.ConditionDeviceInUse, ""}: {Warning, "volume {volume} is to be detached, but its device is in use", []Step{
		{"Stop the processes that the lines above name, on the node", "lsof /dev/longhorn/{volume}; findmnt -S /dev/longhorn/{volume}"},
	}, false},
}

// expansionAdvice is for the expansion of a volume or a replica.
var expansionAdvice = map[cause]advice{
	{KindVolume, types.ConditionExpanded, types.ReasonSizeLimit}: {Warning, "volume {volume} cannot grow to that size, and the expansion has not started", []Step{takeBack, {"Copy the data to a new volume of the required size", ""}}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonNodeCannotGrow}: {Warning, "volume {volume} waits to grow: a node's data plane is of an earlier release, or does not run", []Step{
		{"See what version each data plane has; the daemon replaces it when it can", "kubectl -n {ns} get lhim"}, takeBack,
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonNoRoomToGrow}: {Warning, "volume {volume} waits to grow: a disk with a replica lacks the space", []Step{
		{"Free space on that disk, or move the replica to another disk", "kubectl -n {ns} get lhr -l longhornvolume={volume}"}, takeBack,
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonReplicasGrow}: {Info, "volume {volume} is growing: its replicas grow first", []Step{{"Wait; no action needed", ""}}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonReplicaNotGrown}: {Warning, "volume {volume} is growing, but a replica cannot grow; after five minutes another replica replaces it", []Step{
		seeCopies,
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonEngineExpands}: {Info, "volume {volume} is growing: its engine is about to offer the size", []Step{{"Wait; no action needed", ""}}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonEngineCannotGrow}: {Warning, "volume {volume} has grown, but its device cannot grow while it is attached", []Step{
		{"Detach the volume and attach it again: stop its pod and start it again", "kubectl -n {ns} get lhim"},
	}, false},
	{KindVolume, types.ConditionExpanded, types.ReasonEngineNotExpanded}: {Warning, "volume {volume} has grown, but its engine failed to offer the size; retried automatically", []Step{seeEngine}, false},
	{KindReplica, types.ConditionExpanded, types.ReasonReplicaNotGrown}: {Warning, "replica {replica} cannot grow", []Step{
		{"Free space on its disk", "kubectl longhorn explain node {node}"},
	}, false},
}

var takeBack = Step{"Or cancel the expansion before it starts: set spec.size to the value of status.size", "kubectl -n {ns} get lhv {volume} -o jsonpath='{.status.size}'"}

// ticketAdvice is for a ticket, which requests the attachment of a volume.
var ticketAdvice = map[cause]advice{
	{KindTicket, types.ConditionSatisfied, types.ReasonAttachedElsewhere}: {Warning, "volume {volume} cannot be attached to node {node} while it is attached to another node", []Step{
		{"See which pods use it. If a node is down, delete its pod, or taint the node with node.kubernetes.io/out-of-service. Then Kubernetes detaches the volume", "kubectl get volumeattachments.storage.k8s.io"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonAttachedIncompatibleFrontend}: {Warning, "volume {volume} is attached to node {node} manually, with parameters that do not suit this ticket", []Step{
		{"Detach the volume that was attached manually (REST: action=detach)", "kubectl -n {ns} get lhva {volume} -o yaml"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonWaitingForVolume}: {Info, "volume {volume} is being attached to node {node}", []Step{
		{"See the other lines about the volume; if there are none, wait", "kubectl -n {ns} describe lhv {volume}"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonWaitingForShare}: {Warning, "node {node} waits until volume {volume} is shared", []Step{
		{"See the conditions and Events of its share manager", "kubectl -n {ns} describe lhsm {volume}"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonClientsNotKnown}: {Warning, "node {node} waits until its daemon reports the node's addresses: only listed addresses may mount the share of volume {volume}", []Step{
		{"See why the daemon of the node does not run", "kubectl longhorn status"},
		{"Or name the networks of the nodes in setting rwx-volume-allowed-clients", "kubectl -n {ns} describe lhs rwx-volume-allowed-clients"},
	}, false},
	{KindTicket, types.ConditionSatisfied, types.ReasonStrictLocal}: {Broken, "volume {volume} cannot be attached to node {node}: it is strict-local, and its data is on another node", []Step{
		{"Run the pod on the node that the lines above name, with its nodeSelector", "kubectl -n {ns} get lhr -l longhornvolume={volume}"},
		{"Or allow the volume to leave its node: change it to best-effort while it is detached", `kubectl -n {ns} patch lhv {volume} --type merge -p '{"spec":{"dataLocality":"best-effort"}}'`},
	}, false},
	{KindTicket, types.ConditionSatisfied, ""}: {Warning, "volume {volume} cannot be attached to node {node} in its present state", []Step{
		{"See the other lines about the volume", "kubectl longhorn explain volume {volume}"},
	}, false},
}
