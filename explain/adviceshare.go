package explain

import "github.com/longhorn-lep/longhorn-manager/types"

var seeShareLog = Step{"See what it said", "kubectl -n {ns} logs {pod} --tail=50; kubectl -n {ns} describe pod {pod}"}

// findPV shows the PersistentVolumes with the volume of each: a PersistentVolume need not have the name of its volume.
const findPV = "kubectl get pv -o custom-columns=NAME:.metadata.name,VOLUME:.spec.csi.volumeHandle,ATTRIBUTES:.spec.csi.volumeAttributes"

// shareAdvice is of a shared volume's NFS server.
var shareAdvice = map[cause]advice{
	{KindShareManager, types.ConditionReady, types.ReasonShareNodeDown}: {Broken, "volume {volume} is not shared: the node of its share does not answer, or is no node of this installation; another node takes over", []Step{
		{"Explain the node", "kubectl longhorn explain node {node}"}, describeKubeNode,
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareNotAnswering}: {Broken, "volume {volume} is not shared: its NFS server does not answer, and is replaced", []Step{seeShareLog}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareParameterInvalid}: {Broken, "volume {volume} is not shared: its share cannot be configured as asked", []Step{
		{"Correct the attribute that the message names: attributes of a PersistentVolume cannot be changed, so create the PersistentVolume again", findPV},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonPodStarting}: {Info, "the share of volume {volume} is starting", []Step{
		{"See what its pod waits for", "kubectl -n {ns} describe pod {pod}"},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareDelayed}: {Broken, "volume {volume} is not shared yet: its share is late to start", []Step{
		{"See what its pod waits for, and what it said", "kubectl -n {ns} describe pod {pod}; kubectl -n {ns} logs {pod} --tail=50"},
		{"Where it waits for the volume, see what the volume waits for", "kubectl -n {ns} describe lhv {volume}"},
		{"Where the API server refuses the pod, see what limits the namespace", seeLimits},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareForeignPod}: {Broken, "a pod that is not the share's has the name of the pod that serves volume {volume}", []Step{
		{"See whose it is", "kubectl -n {ns} get pod {pod} -o yaml"},
		{"If nothing needs it, delete it", "kubectl -n {ns} delete pod {pod}"},
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonShareNotStarted}: {Broken, "volume {volume} is not shared: the pod of its share did not start, and another one is tried", []Step{
		{"See why, in the Events of the share's volume", "kubectl -n {ns} describe lhv {volume}"}, seeShareLog,
	}, false},
	{KindShareManager, types.ConditionReady, types.ReasonPodFailed}:   {Broken, "volume {volume} is not shared: the pod of its share has failed, and another one is tried", []Step{seeShareLog}, false},
	{KindShareManager, types.ConditionReady, types.ReasonPodDeleting}: {Warning, "volume {volume} is not shared: the pod of its share is being deleted; another one takes its place", []Step{seeShareLog}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsAllowedBySetting}: {Info, "whoever reaches the share of volume {volume} may mount it: a setting says so", []Step{
		{"Where pods are not to mount it by themselves, allow the nodes alone", `kubectl -n {ns} patch lhs rwx-volume-allowed-clients --type merge -p '{"value":"nodes"}'`},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsNotKnown}: {Warning, "whoever reaches the share of volume {volume} may mount it if its pod is of an earlier release: the addresses of some nodes are not known", []Step{
		{"See why the daemons of these nodes do not run", "kubectl longhorn status"},
		{"Or name the networks of the nodes in setting rwx-volume-allowed-clients", "kubectl -n {ns} describe lhs rwx-volume-allowed-clients"},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsNotListed}: {Warning, "no client may mount the share of volume {volume} yet: the list of clients is being made", []Step{
		{"Nothing is to be done, unless it stays so", "kubectl -n {ns} get configmap longhorn-share-clients -o yaml"},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsOlderPod}: {Info, "whoever reaches the share of volume {volume} may mount it: its pod is of an earlier release", []Step{
		{"Delete the pod when its clients may wait for some seconds: the next one has the list", "kubectl -n {ns} delete pod {pod}"},
	}, false},
	{KindShareManager, types.ConditionClientsLimited, types.ReasonClientsNotLimited}: {Warning, "any pod that reaches the share of volume {volume} may mount it: the kernel of its node does not limit clients", []Step{
		{"Load the module nf_tables on the node, or give it a kernel that has nftables; the share tries again by itself", "kubectl longhorn explain volume {volume}"},
		{"Until then, keep foreign pods away from port 2049 by a NetworkPolicy", "kubectl -n {ns} get networkpolicy"},
		seeShareLog,
	}, false},
	{KindShareManager, types.ConditionExpanded, types.ReasonFilesystemNotGrown}: {Warning, "volume {volume} has its size, and its file system does not fill it", []Step{
		{"When clients may wait, delete the pod of the share: the next one lets the file system grow unmounted", "kubectl -n {ns} delete pod {pod}"}, seeShareLog,
	}, false},
	{KindShareManager, types.ConditionClientStateKept, types.ReasonRecoveryDataMissing}: {Warning, "clients of volume {volume} have lost their open files and locks when its server was replaced", []Step{
		{"Restart the pods that use the volume and report errors; those with a controller are restarted by themselves", "kubectl -n {ns} describe lhv {volume}"},
	}, false},
	{KindShareManager, types.ConditionClientStateKept, types.ReasonRecoveryDataUnusable}: {Warning, "the server of volume {volume} cannot keep what its clients have open: they lose it when the server is replaced", []Step{
		{"Make room on the volume, or mend its file system, as the message says", ""}, seeShareLog,
	}, false},
}
