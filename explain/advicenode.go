package explain

import "github.com/longhorn-lep/longhorn-manager/types"

var (
	describeKubeNode = Step{"See the status of the Kubernetes node", "kubectl describe node {node}"}
	seeDaemon        = Step{"See why the daemon's pod does not run", "kubectl -n {ns} get pods -l app=longhorn-manager --field-selector spec.nodeName={node} -o wide"}
	runDoctor        = Step{"Check on the node itself what it lacks", "kubectl -n {ns} exec {daemon} -- longhorn-manager doctor"}
	fixAnnotation    = Step{"Correct the annotation at the place that the lines above name; it is applied at once", "kubectl edit node {node}"}
)

// nodeAdvice is for the conditions of a node.
var nodeAdvice = map[cause]advice{
	{KindNode, types.ConditionReady, types.ReasonKubernetesNodeGone}: {Broken, "node {node} is gone: its Kubernetes node was removed", []Step{
		{"If the node is to come back, add it to the cluster under the same name, with its disks", ""},
		{"Otherwise no action is needed: its replicas are rebuilt on other nodes, and the Longhorn node is deleted", "kubectl -n {ns} get lhr -l longhornnode={node}"},
	}, false},
	{KindNode, types.ConditionReady, types.ReasonKubernetesNodeNotReady}: {Broken, "node {node} is not ready: its kubelet does not answer, or reports that it is not ready", []Step{
		describeKubeNode,
		{"Bring the node back: check its power, its network and the kubelet (systemctl status kubelet on the node). Its replicas come back with their data", ""},
	}, false},
	{KindNode, types.ConditionReady, types.ReasonNodeNotAnswering}: {Broken, "node {node} is silent: it served shares, and answers neither the leader nor another node", []Step{
		{"See when that was detected, and which node was the witness", "kubectl -n {ns} get lhn {node} -o jsonpath={.status.silence}"},
		{"Check the node's network and load; its shares are moving to other nodes", ""},
	}, false},
	{KindNode, types.ConditionReady, types.ReasonManagerPodMissing}: {Warning, "no pod of longhorn-manager is on node {node}: volumes are served, but no new operation starts there", []Step{
		{"See why the DaemonSet has no pod there; the most frequent cause is a taint of the node", "kubectl -n {ns} describe daemonset longhorn-manager"},
		describeKubeNode,
	}, false},
	{KindNode, types.ConditionRemovable, types.ReasonManagerPodMissing}: {Info, "node {node} cannot be deleted yet: its daemon may come back", []Step{
		{"Bring longhorn-manager back to the node; or wait five minutes if you want to delete the node", "kubectl -n {ns} describe daemonset longhorn-manager"},
	}, false},
	{KindNode, types.ConditionRemovable, types.ReasonNodeInUse}: {Info, "node {node} cannot be deleted while a volume is used on it", []Step{
		{"Delete the pods that use volumes there, if you want to delete the node", "kubectl get pods -A -o wide --field-selector spec.nodeName={node}"},
	}, false},
	{KindNode, types.ConditionRemovable, types.ReasonLastReplica}: {Info, "node {node} cannot be deleted: it has the last healthy replica of a volume", []Step{
		{"Bring longhorn-manager back to the node, so that the volume is copied to another node", "kubectl -n {ns} describe daemonset longhorn-manager"},
	}, false},
	{KindNode, types.ConditionReady, types.ReasonManagerPodDown}: {Warning, "the pod of longhorn-manager on node {node} is not ready: volumes are served, but no new operation starts there", []Step{
		seeDaemon, {"See its log", "kubectl -n {ns} logs {daemon} --tail=50"},
	}, false},
	{KindNode, types.ConditionReady, types.ReasonKubeletNotReady}: {Warning, "the kubelet of node {node} reports that it is not ready; its shares keep serving", []Step{
		describeKubeNode,
	}, false},
	{KindNode, types.ConditionReady, types.ReasonKubernetesNodePressure}: {Warning, "node {node} lacks memory, disk, process ids or network", []Step{describeKubeNode}, false},
	{KindNode, types.ConditionSchedulable, types.ReasonKubernetesNodeCordoned}: {Info, "node {node} gets no new replicas: its Kubernetes node is cordoned", []Step{
		{"When its maintenance is over, allow pods and replicas on it again", "kubectl uncordon {node}"},
	}, false},
	{KindNode, types.ConditionMountPropagation, types.ReasonNoMountPropagation}: {Warning, "the daemon on node {node} does not see later mounts: it does not find a disk that is mounted after it started", []Step{
		{"On the node, make its root directory a shared mount, also after a restart", "mount --make-rshared /"},
		{"Then restart the daemon's pod there", "kubectl -n {ns} delete pod -l app=longhorn-manager --field-selector spec.nodeName={node}"},
	}, false},
	{KindNode, types.ConditionKernelModulesLoaded, types.ReasonKernelModulesNotLoaded}: {Broken, "no volume can be attached on node {node}: its kernel lacks the modules for block devices", []Step{
		{"On the node, load the modules, and list them in /etc/modules-load.d for the next start", "modprobe -a fuse loop"}, runDoctor,
	}, false},
	{KindNode, types.ConditionKernelModulesLoaded, types.ReasonKernelCheckFailed}: {Warning, "the features of the kernel of node {node} are unknown", []Step{runDoctor}, false},
	{KindNode, types.ConditionNFSClientInstalled, types.ReasonNFSClientNotFound}: {Info, "node {node} has no NFS client: no volume with access mode ReadWriteMany can be mounted there", []Step{
		{"On the node, load the client, and list it in /etc/modules-load.d for the next start", "modprobe nfsv4"},
		{"If the node's kernel has no such module, install the package with its modules, or run the pods of shared volumes on other nodes", "kubectl -n {ns} get lhn -o custom-columns='NAME:.metadata.name,NFS:.status.conditions[?(@.type==\"NFSClientInstalled\")].status'"},
	}, false},
	{KindNode, types.ConditionNFSClientIDUnique, types.ReasonNFSClientIDShared}: {Warning, "shares cannot distinguish node {node} from another node whose NFS client has the same identifier", []Step{
		{"See which identifier each node has", "kubectl -n {ns} get lhn -o custom-columns=NAME:.metadata.name,NFSCLIENTID:.status.nfsClientID"},
		{"On all of these nodes except one, remove the configuration that sets the identifier (nfs_client/identifier below /sys/fs/nfs/net, or nfs4_unique_id of the module nfs); each node then gets its own identifier", ""},
		{"Then drain and restart these nodes: a client keeps its name as long as it exists", "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"},
	}, false},
	{KindNode, types.ConditionNFSClientInstalled, types.ReasonKernelCheckFailed}: {Info, "it is unknown whether node {node} has an NFS client", []Step{runDoctor}, false},
	{KindNode, types.ConditionDeviceSuccession, types.ReasonKernelTooOld}: {Info, "volumes on node {node} lose their device when the process that serves them exits", []Step{
		{"Install Linux 6.9 or later on the node, or the kernel module nbd with Linux 5.14 or later", "uname -r"},
	}, false},
	{KindNode, types.ConditionKernelNBDClient, types.ReasonKernelNBDClientNotUsed}: {Info, "block devices on node {node} use FUSE, where a flush delays all other requests of the device", []Step{
		{"On the node, load the module, and list it in /etc/modules-load.d for the next start; devices that are created later use it", "modprobe nbd"},
	}, false},
	{KindNode, types.ConditionDefaultDisksConfig, types.ReasonDefaultDisksConfigInvalid}: {Warning, "the annotation with the default disks of node {node} is refused as a whole: no disk is created from it", []Step{
		fixAnnotation, {"See the present annotation", `kubectl get node {node} -o jsonpath='{.metadata.annotations.node\.longhorn\.io/default-disks-config}'`},
	}, false},
	{KindNode, types.ConditionDefaultDisksConfig, types.ReasonCreateDefaultDiskLabelInvalid}: {Warning, "node {node} gets no default disk: the value of its label node.longhorn.io/create-default-disk is invalid", []Step{
		{"Set it to true for the default disk, or to config for the disks of the annotation", "kubectl label --overwrite node {node} node.longhorn.io/create-default-disk=true"},
	}, false},
	{KindNode, types.ConditionDefaultDisksConfig, types.ReasonDefaultDiskFailed}: {Warning, "the default disk of node {node} could not be created", []Step{
		{"Fix the problem that the lines above name; the manager then retries automatically", ""}, runDoctor,
	}, false},
	{KindNode, types.ConditionDefaultDisksConfigUsed, types.ReasonCreateDefaultDiskSettingOff}: {Info, "the annotation with the default disks of node {node} is not used: the setting create-default-disk-labeled-nodes is off", []Step{
		{"Turn the setting on, if the annotation is to be used; it is used only while the node has no disk", `kubectl -n {ns} patch lhs create-default-disk-labeled-nodes --type merge -p '{"value":"true"}'`},
	}, false},
	{KindNode, types.ConditionDefaultDisksConfigUsed, types.ReasonCreateDefaultDiskLabelNotConfig}: {Info, "the annotation with the default disks of node {node} is not used: the value of its label is not config", []Step{
		{"Label the node, if the annotation is to be used; it is used only while the node has no disk", "kubectl label --overwrite node {node} node.longhorn.io/create-default-disk=config"},
	}, false},
	{KindNode, types.ConditionDefaultDisksConfigUsed, types.ReasonNodeHasDisks}: {Info, "the annotation with the default disks of node {node} is not used: the node already has disks", []Step{
		{"Add disks to the Longhorn node, if it is to have more", "kubectl -n {ns} edit lhn {node}"},
	}, false},
	{KindNode, types.ConditionDefaultNodeTags, types.ReasonDefaultNodeTagsInvalid}: {Warning, "the annotation with the tags of node {node} is refused: no tag is set", []Step{fixAnnotation}, false},
}

// managerAdvice is for the conditions of an instance manager, a node's data plane.
var managerAdvice = map[cause]advice{
	{KindInstanceManager, types.ConditionPodReady, types.ReasonPodStarting}: {Warning, "the data plane of node {node} is starting", []Step{describePod}, false},
	{KindInstanceManager, types.ConditionPodReady, types.ReasonPodFailed}: {Broken, "the data plane of node {node} has failed: no replica and no engine runs there", []Step{
		{"See why it stopped; the daemon creates another pod automatically", "kubectl -n {ns} logs {name} --previous --tail=50"}, describePod, runDoctor,
	}, false},
	{KindInstanceManager, types.ConditionPodReady, types.ReasonPodNotFound}: {Broken, "the data plane of node {node} has no pod: no replica and no engine runs there", []Step{
		seeDaemon, {"See whether a quota, a policy or a taint blocks the pod", "kubectl -n {ns} get events --field-selector involvedObject.name={name}"},
	}, false},
	{KindInstanceManager, types.ConditionPodReady, types.ReasonChildRefused}: {Broken, "the API server refuses the pod of the data plane of node {node}: no replica and no engine runs there", []Step{
		{"Change the limit, quota, policy or webhook that the lines above name; the pod is then created automatically", seeLimits},
	}, false},
	{KindInstanceManager, types.ConditionPodReady, types.ReasonPodDeleting}: {Warning, "the pod of the data plane of node {node} is being deleted; another pod replaces it", []Step{describePod}, false},
	{KindInstanceManager, types.ConditionPodReady, types.ReasonNodeDown}:    {Broken, "the state of the data plane of node {node} is unknown: the node is down", []Step{describeKubeNode}, false},
	{KindInstanceManager, types.ConditionDrainable, types.ReasonEngineRuns}: {Info, "a drain of node {node} waits until the volumes attached there are detached", []Step{
		{"See the pods of the node; kubectl drain stops them. Volumes that a user attached manually must be detached by that user", "kubectl get pods -A --field-selector spec.nodeName={node}"},
	}, false},
	{KindInstanceManager, types.ConditionDrainable, types.ReasonLastReplica}: {Warning, "a drain of node {node} waits: it has the last healthy replica of a volume", []Step{
		{"Wait until another copy is rebuilt. Attach detached volumes that the lines above name, so that they can be rebuilt", "kubectl -n {ns} get lhv"},
		{"If the copies may be unavailable while the node is drained, allow that", `kubectl -n {ns} patch lhs node-drain-policy --type merge -p '{"value":"always-allow"}'`},
	}, false},
	{KindInstanceManager, types.ConditionDrainable, types.ReasonHasReplicas}: {Info, "a drain of node {node} waits until its copies are on other nodes", []Step{
		{"See which replicas remain; replicas of a detached volume move when it is attached", "kubectl -n {ns} get lhr -l longhornnode={node}"},
	}, false},
}

var describePod = Step{"See what its pod waits for", "kubectl -n {ns} describe pod {name}"}

// settingAdvice is for the conditions of a setting.
var settingAdvice = map[cause]advice{
	{KindSetting, types.ConditionValid, types.ReasonInvalidValue}: {Warning, "the value of setting {name} is invalid; the last valid value stays in force", []Step{
		{"Set a value that the rule allows; an empty value means the default (docs/SETTINGS.md)", `kubectl -n {ns} patch lhs {name} --type merge -p '{"value":""}'`},
	}, false},
	{KindSetting, types.ConditionValid, types.ReasonUnknownName}: {Info, "this release does not know setting {name}, and does not use it", []Step{
		{"Correct the name, or delete the object if no other release needs it", "kubectl -n {ns} delete lhs {name}"},
	}, false},
	{KindSetting, types.ConditionTrustedNetwork, types.ReasonNoCredentialWanted}: {Warning, "the REST API requires no credential: any client that reaches its port can delete volumes", []Step{
		{"When all pods are of this release and all clients send a token, turn the mode off (docs/SECURITY.md)", `kubectl -n {ns} patch lhs {name} --type merge -p '{"value":"false"}'`},
	}, false},
}
