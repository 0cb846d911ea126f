package explain

import "github.com/longhorn-lep/longhorn-manager/types"

var seeShareLog = Step{"See its log and its Events", "kubectl -n {ns} logs {pod} --tail=50; kubectl -n {ns} describe pod {pod}"}

// findPV lists the PersistentVolumes with the volume of each. A PersistentVolume need not have the name of its
// volume.
const findPV = "kubectl get pv -o custom-columns=NAME:.metadata.name,VOLUME:.spec.csi.volumeHandle,ATTRIBUTES:.spec.csi.volumeAttributes"

// shareAdvice is for the NFS server of a shared volume.
var shareAdvice = map[cause]advice{
	{KindShareManager, types.ConditionReady, types.ReasonShareNodeDown}: {Broken, "volume {volume} is not shared: the node of its share does not answer, or does not belong to this installation; another node takes over", []Step{
		{"Explain the node", "kubectl longhorn explain node {node}"}, describeKubeNode,
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareNotAnswering}: {Broken, "volume {volume} is not shared: its NFS server does not answer, and is being replaced", []Step{seeShareLog}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareParameterInvalid}: {Broken, "volume {volume} is not shared: its share cannot be configured as requested", []Step{
		{"Correct the attribute that the lines above name: attributes of a PersistentVolume cannot be changed, so create the PersistentVolume again", findPV},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonPodStarting}: {Info, "the share of volume {volume} is starting", []Step{
		{"See what its pod waits for", "kubectl -n {ns} describe pod {pod}"},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareDelayed}: {Broken, "volume {volume} is not shared yet: its share has not started for a while", []Step{
		{"See what its pod waits for, and its log", "kubectl -n {ns} describe pod {pod}; kubectl -n {ns} logs {pod} --tail=50"},
		{"If it waits for the volume, see what the volume waits for", "kubectl -n {ns} describe lhv {volume}"},
		{"If the API server refuses the pod, see what limits the namespace", seeLimits},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareForeignPod}: {Broken, "a pod that does not belong to the share has the name of the pod that serves volume {volume}", []Step{
		{"See where the pod comes from", "kubectl -n {ns} get pod {pod} -o yaml"},
		{"If it is not needed, delete it", "kubectl -n {ns} delete pod {pod}"},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareNotStarted}: {Broken, "volume {volume} is not shared: the pod of its share did not start; another pod is tried", []Step{
		{"See why, in the Events of the share's volume", "kubectl -n {ns} describe lhv {volume}"}, seeShareLog,
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonPodFailed}:   {Broken, "volume {volume} is not shared: the pod of its share has failed; another pod is tried", []Step{seeShareLog}, false},
	{KindShareManager, types.ConditionReady, types.ReasonPodDeleting}: {Warning, "volume {volume} is not shared: the pod of its share is being deleted; another pod replaces it", []Step{seeShareLog}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsAllowedBySetting}: {Info, "any client that reaches the share of volume {volume} may mount it: a setting allows it", []Step{
		{"If pods must not mount it directly, allow only the nodes", `kubectl -n {ns} patch lhs rwx-volume-allowed-clients --type merge -p '{"value":"nodes"}'`},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsNotKnown}: {Warning, "any client that reaches the share of volume {volume} may mount it if the share's pod is of an earlier release: the addresses of some nodes are unknown", []Step{
		{"See why the daemons of these nodes do not run", "kubectl longhorn status"},
		{"Or name the networks of the nodes in setting rwx-volume-allowed-clients", "kubectl -n {ns} describe lhs rwx-volume-allowed-clients"},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsNotListed}: {Warning, "no client may mount the share of volume {volume} yet: the list of clients is being created", []Step{
		{"No action needed, unless this lasts", "kubectl -n {ns} get configmap longhorn-share-clients -o yaml"},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsOlderPod}: {Info, "any client that reaches the share of volume {volume} may mount it: the share's pod is of an earlier release", []Step{
		{"Delete the pod when its clients can wait for some seconds: the next pod has the list", "kubectl -n {ns} delete pod {pod}"},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsNotLimited}: {Warning, "any pod that reaches the share of volume {volume} may mount it: the kernel of its node does not limit clients", []Step{
		{"Load the module nf_tables on the node, or install a kernel with nftables there; the share retries automatically", "kubectl longhorn explain volume {volume}"},
		{"Until that is done, keep other pods away from port 2049 with a NetworkPolicy", "kubectl -n {ns} get networkpolicy"},
		seeShareLog,
	}, false},
	{KindShareManager, types.ConditionExpanded, types.ReasonFilesystemNotGrown}: {Warning, "volume {volume} has its size, but its file system does not fill it", []Step{
		{"When clients can wait, delete the pod of the share: the next pod grows the file system while it is not mounted", "kubectl -n {ns} delete pod {pod}"}, seeShareLog,
	}, false},
	{KindShareManager, types.ConditionClientStateKept, types.ReasonRecoveryDataMissing}: {Warning, "clients of volume {volume} lost their open files and locks when its server was replaced", []Step{
		{"Restart the pods that use the volume and report errors; pods with a controller are restarted automatically", "kubectl -n {ns} describe lhv {volume}"},
	}, false},
	{KindShareManager, types.ConditionClientStateKept, types.ReasonRecoveryDataUnusable}: {Warning, "the server of volume {volume} cannot record the open files and locks of its clients: they lose them when the server is replaced", []Step{
		{"Free space on the volume, or repair its file system, as the lines above say", ""}, seeShareLog,
	}, false},
}
