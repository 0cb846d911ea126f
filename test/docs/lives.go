package docs

import "fmt"

// Part is a section of a page. All its blocks are run in order.
type Part struct{ Page, Section string }

// Life follows an installation from beginning to end, with the commands of the pages. Variables that a block sets in
// the shell are available in the next blocks.
type Life struct {
	Name  string
	Parts []Part
	// ByHand is the manual work that the text requests from readers, as a command. The key is the first line of the
	// next block.
	ByHand map[string]string
}

const (
	gettingStarted = "docs/GETTING-STARTED.md"
	features       = "docs/FEATURES.md"
	commands       = "docs/COMMANDS.md"
	failures       = "docs/FAILURES.md"
	security       = "docs/SECURITY.md"
	settings       = "docs/SETTINGS.md"
	trouble        = "docs/TROUBLESHOOTING.md"
	upgrading      = "docs/UPGRADE.md"
	uninstalling   = "docs/UNINSTALL.md"
)

// SwitchOn is the command by which the test switches a node on. Readers do that manually.
const SwitchOn = "switch-on"

// Lives are the lives that a test runs. At the start and at the end of each, the cluster contains nothing of the
// installation.
var Lives = []Life{
	{
		Name: "with Helm",
		Parts: []Part{
			{gettingStarted, "Install with Helm"},
			{gettingStarted, "The command line"},
			{gettingStarted, "A claim and a pod"},
			{gettingStarted, "Look at it"},
			{gettingStarted, "Open the web page"},
			{features, "Features"},
			{features, "REST"},
			{features, "The web page"},
			{features, "StorageClasses"},
			{features, "Disks"},
			{features, "Tags"},
			{features, "Number of replicas"},
			{features, "Placement"},
			{features, "A replica where the workload runs"},
			{features, "One replica on one node"},
			{features, "Evicting"},
			{features, "Growing a volume"},
			{features, "Giving space back"},
			{features, "Volumes that many pods share"},
			{features, "Settings"},
			{settings, "Settings"},
			{security, "Who may ask the REST API"},
			{commands, "Commands for people"},
			{commands, "Which object explain means"},
			{commands, "preflight"},
			{commands, "doctor"},
			{commands, "support-bundle"},
			{features, "Draining a node"},
			{upgrading, "With Helm"},
			{upgrading, "What happens"},
			{gettingStarted, "Look at it"},
			{gettingStarted, "Break a node"},
			{failures, "Failures"},
			{trouble, "Ask the product first"},
			{trouble, "A claim is Pending"},
			{trouble, "A pod hangs in ContainerCreating"},
			{trouble, "A pod hangs in Terminating"},
			{trouble, "A volume stays degraded"},
			{trouble, "A volume is faulted"},
			{trouble, "A volume does not attach"},
			{trouble, "A disk is not ready or not schedulable"},
			{trouble, "A node is not ready"},
			{trouble, "A drain does not finish"},
			{trouble, "A share does not mount or hangs"},
			{trouble, "A setting has no effect"},
			{trouble, "The page refuses the login"},
			{trouble, "There is no space"},
			{gettingStarted, "Uninstall"},
		},
		ByHand: map[string]string{
			`kubectl -n longhorn-system wait "lhv/$VOLUME" --for=jsonpath='{.status.robustness}'=healthy --timeout=10m`: SwitchOn + ` "$BROKEN"`,
		},
	},
	{
		Name: "with kubectl",
		Parts: []Part{
			{gettingStarted, "Install with kubectl"},
			{upgrading, "With kubectl"},
			{upgrading, "Going back"},
			{uninstalling, "Steps"},
		},
	},
}

// Blocks returns the commands of a life, and the manifests that readers save in its parts, in order. It omits the
// blocks that are not run.
func (l Life) Blocks(pages []Page) ([]Block, error) {
	var all []Block
	for _, part := range l.Parts {
		found := false
		for _, p := range pages {
			for _, b := range p.Blocks {
				if p.Path != part.Page || b.Section != part.Section || b.Info != Commands && b.File() == "" || notRun[b.FirstLine()] != "" {
					continue
				}
				all, found = append(all, b), true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s has no commands under %q", part.Page, part.Section)
		}
	}
	return all, nil
}

// notRun are the blocks that belong to no life, by their first line, each with the reason. A block with the same text
// as a block that is run needs no entry.
var notRun = map[string]string{
	"make image                                     # dist/longhorn-manager.tar; or: docker build -f deploy/Dockerfile .": "it pushes to a registry; scripts/test.sh makes the image, and the clusters load it",
	"make demo     # a three-node Kubernetes cluster on this machine, a pod writing to its volume":                        "they are what runs the tests; the demo is the same cluster and manifest",
	"make build      # bin/longhorn-manager and bin/devcluster; minutes the first time, which compiles Kubernetes":        "they are what runs the tests",
	"LONGHORN_E2E=keep go test -count=1 -v -run TestNodeIsCutOff ./test/e2e":                                              "it is what runs the tests",
	"go build -o kubectl-longhorn .":                      "it is how scripts/build.sh makes the program",
	"helm uninstall longhorn --namespace longhorn-system": "TestUninstall, with Helm's release removed: it takes a minute more",
	"kubectl longhorn ui":                                 "it runs until its reader stops it; app/page",
	"kubectl longhorn ui --open":                          "it opens a browser, and runs until its reader stops it; app/page",
	"sudo longhorn-manager doctor":                        "on a node itself, which has no cluster; the same is run in the daemon's pod",
	`curl --cacert ca.crt -H "Authorization: Bearer $(kubectl -n default create token operator --audience longhorn-backend)" \`:     "in a pod with curl; TestRESTWantsACredential",
	`kubectl kustomize "https://github.com/kubernetes-csi/external-snapshotter/client/config/crd?ref=v8.7.0" | kubectl create -f -`: "the cluster of the tests has these kinds, and cannot reach the address",
	"source <(longhorn-manager completion bash)              # or zsh":                                                              "it changes the reader's shell; app/completion_test.go",
}

// notRunInline are commands in the text of the pages for users, outside of blocks, each with the reason.
var notRunInline = map[string]string{
	"kubectl delete -f deploy/longhorn.yaml":     never,
	"kubectl create":                             "it says what fails",
	"kubectl longhorn ui":                        "it runs until its reader stops it; app/page",
	"kubectl -n longhorn-system delete lhv":      "it has no name: the text says of which volume",
	"kubectl -n longhorn-system delete lhn NODE": "NODE stands for a node that its daemon has left; controller/node, manager and test/policy have the rule",
	"kubectl api-resources":                      "it stands for the table that it prints",
	"kubectl get events":                         "it stands for the right that it needs",
	"kubectl describe pvc":                       "it has no name: any claim",
	"kubectl get lhn":                            "it stands for the table that it prints",
	"kubectl get lhs":                            "it stands for the table that it prints",
	"kubectl longhorn snapshot list":             "it stands for the table that it prints",
	"kubectl -n longhorn-system get lhsnap":      "it stands for the table that it prints",
	"kubectl get lhva":                           "it stands for the table that it prints",
	"kubectl get -o name":                        "it stands for the names that it prints",
	"kubectl longhorn explain node NODE":         "NODE stands for a node; blocks explain one by its name",
	"kubectl taint node NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute": "TestNodeIsCutOff",
	"kubectl taint node NODE node.kubernetes.io/out-of-service-":                       "TestNodeIsCutOff",
	"helm uninstall":                "it stands for the command of the block",
	"helm install --take-ownership": "it stands for the whole command; Helm's own flag",
	"kubectl -n longhorn-uninstall logs -f job/longhorn-uninstall":                             "it ends when the Job does; the block reads the log then",
	"kubectl -n longhorn-uninstall delete job longhorn-uninstall":                              "after a refusal; TestUninstall has one, and deletes the Job",
	"kubectl -n longhorn-uninstall get pods":                                                   "where the uninstaller does not start",
	"kubectl -n longhorn-system delete daemonset longhorn-manager --cascade=foreground":        "TestUninstall, with the manager gone",
	"kubectl -n longhorn-system get volumes,engines,replicas.longhorn.io -o yaml > saved.yaml": "it reads; the namespace has to be Terminating",
}

const never = "the text says never to run it; TestUninstall shows what becomes of an installation without its policies"
