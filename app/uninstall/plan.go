package uninstall

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Object is one object, as far as its end is concerned.
type Object struct {
	Name, Namespace string
	UID             string
	Labels          map[string]string
	DeletedAt       time.Time // zero: it is not being deleted
	Finalizers      []string
	Node            string // of replicas and pods
	Ready           bool   // of pods and Kubernetes nodes
	Provisioner     string // of StorageClasses; of Kubernetes' VolumeAttachments the attacher, of PersistentVolumes the driver
	Volume          string // of PersistentVolumes, engines and replicas: the volume's name
	// ClaimNamespace and Claim are of PersistentVolumes: whose claim has it.
	ClaimNamespace, Claim string
	Value                 string // of settings
	Path                  string // of replicas that were made: where their data is
	Disk                  string // of replicas: its UUID
	// Reason and Message are of replicas that are not open and cannot be: their condition's.
	Reason, Message string
	ReadyDisks      []string // of nodes: the UUIDs
}

// volume is the volume of an engine or a replica.
func (o Object) volume() string { return cmp.Or(o.Volume, o.Labels[types.LabelVolume]) }

func (o Object) isDeleted() bool { return !o.DeletedAt.IsZero() }

// isHeld tells whether a finalizer of ours is on it.
func (o Object) isHeld(k Kind) bool {
	return slices.ContainsFunc(o.Finalizers, func(f string) bool { return isFinalizerOurs(k, f) })
}

// State is all that there is.
type State struct {
	Namespace string
	// Forced: the data may be deleted though no setting says so, for that may be gone already.
	Forced  bool
	Objects map[Kind][]Object
	// Elsewhere are objects of our kinds, and DaemonSets, of other namespaces than the given one.
	Elsewhere map[Kind][]Object
	// Users are the pods that use a volume that is being deleted, by its name: as <namespace>/<name>.
	Users map[string][]string
	Now   time.Time
	// Patience is Options.Patience.
	Patience time.Duration
}

// Verb is what to do to an object.
type Verb string

// The verbs. Strip removes our finalizer after a live look that shows the same deletion and, for
// objects that stand for data, that no daemon can end them properly.
const (
	Delete Verb = "delete"
	Strip  Verb = "strip"
	Force  Verb = "force" // delete a pod whose kubelet does not answer
)

// Action is one step; each may be repeated.
type Action struct {
	Verb Verb
	Kind Kind
	Object
	// Leaves says what stays behind; "" nothing.
	Leaves string
}

// Plan is what to do in one round.
type Plan struct {
	Stage   string
	Actions []Action
	// Waits names what is on its way out.
	Waits []string
	// Refused says why the round does nothing at all.
	Refused string
	// Removed names what the round deleted.
	Removed []string
	// Done: nothing is left but what is in Stays.
	Done  bool
	Stays string
}

// stage is one that must end before the next begins.
type stage struct {
	name string
	step func(s State, p *Plan)
}

// stages in their order. Each is over when it has nothing to do and nothing to wait for.
var stages = []stage{
	// First, while the policies still protect what is there: a volume that is made meanwhile is seen
	// in a later round, and refused unless it is confirmed. No policy refuses what is deleted here.
	// The manager makes the ConfigMap anew while its template is there: both go in one round.
	{"the StorageClass's ConfigMap", deleteAll(configMaps)},
	{"what makes new volumes", newVolumes},
	// They would refuse what follows; what follows is confirmed.
	{"admission policies", deleteAll(policyBindings, policies)},
	{"volumes and their data", volumesAndData},
	// While the CSI controller ran it would have ended them.
	{"PersistentVolumes", lostPersistentVolumes},
	{"attachments and share managers", deleteAll(shareManagers, attachments)},
	// Before what the daemons would make anew.
	{"the manager and the CSI driver", workloads},
	{"instance managers", deleteAll(instanceManagers, budgets)},
	{"pods", waitForPods},
	{"nodes and settings", nodesAndSettings},
	{"definitions", deleteAll(definitions)},
	{"the driver's registration", deleteAll(kubeAttachments, drivers)},
	{"the namespace", theNamespace},
	// Last, so that a namespace that is being deleted is never without the rights that its end needs.
	{"roles", deleteAll(clusterBindings, clusterRoles)},
}

// strips tells whether the plan has that very step.
func (p Plan) strips(a Action) bool {
	return slices.ContainsFunc(p.Actions, func(b Action) bool {
		return b.Verb == Strip && b.Kind == a.Kind && b.Name == a.Name && b.UID == a.UID
	})
}

func plan(s State) Plan {
	if why := s.refusal(); why != "" {
		return Plan{Refused: why}
	}
	for _, stage := range stages {
		p := Plan{Stage: stage.name}
		stage.step(s, &p)
		if len(p.Actions) > 0 || len(p.Waits) > 0 {
			return p
		}
	}
	return Plan{Done: true, Stays: s.stays()}
}

// stays says that the given namespace is not deleted.
func (s State) stays() string {
	for _, o := range s.Objects[namespaces] {
		if o.Name == s.Namespace {
			return fmt.Sprintf("namespace %s stays: it has no label %s=%s; if the installation alone used it, delete it by hand", o.Name, types.InstallationLabel, types.InstallationValue)
		}
	}
	return ""
}

// of are the objects of a kind that belong to the installation.
func (s State) of(k Kind) []Object {
	var mine []Object
	for _, o := range s.Objects[k] {
		if isOurs(k, o, s.Namespace) {
			mine = append(mine, o)
		}
	}
	return mine
}

// deleteAll deletes all objects of these kinds, and removes our finalizer from what is deleted.
func deleteAll(kinds ...Kind) func(State, *Plan) {
	return func(s State, p *Plan) {
		for _, k := range kinds {
			for _, o := range s.of(k) {
				p.end(k, o, true, "")
			}
		}
	}
}

// end deletes an object, or waits for its end, or removes our finalizer where that may be.
func (p *Plan) end(k Kind, o Object, strip bool, leaves string) {
	switch {
	case !o.isDeleted():
		p.Actions = append(p.Actions, Action{Verb: Delete, Kind: k, Object: o})
	case strip && o.isHeld(k):
		p.Actions = append(p.Actions, Action{Verb: Strip, Kind: k, Object: o, Leaves: leaves})
	default:
		p.Waits = append(p.Waits, waited(k, o))
	}
}

// waited names what is waited for, with what it says of itself.
func waited(k Kind, o Object) string {
	if o.Message != "" {
		return fmt.Sprintf("%s/%s (%s: %s)", k.Resource, o.Name, o.Reason, o.Message)
	}
	return fmt.Sprintf("%s/%s", k.Resource, o.Name)
}

func nodesAndSettings(s State, p *Plan) {
	deleteAll(append(unknown(s.of(definitions)), nodes, settings)...)(s, p)
}

// newVolumes ends what provisions, and waits for its pods: they finish what they began. The manager
// makes the StorageClass again while the ConfigMap is there, so that went before.
func newVolumes(s State, p *Plan) {
	deleteAll(storageClasses)(s, p)
	for _, k := range []Kind{deployments, replicaSets} { // a ReplicaSet may be left without its Deployment
		for _, o := range s.of(k) {
			p.end(k, o, false, "")
		}
		if len(p.Actions) > 0 {
			return
		}
	}
	s.endPodsOf(types.AppCSIController, p)
}

// workloads are the DaemonSets and what is before them. CSI node plugins go with the daemons: until
// then kubelets need them to unmount what is in use.
func workloads(s State, p *Plan) {
	deleteAll(deployments, daemonSets, services)(s, p)
	if len(p.Actions) == 0 {
		s.endPodsOf(types.AppManager, p)
	}
}

// endPodsOf waits for the pods of an app, and deletes them once their makers are gone: one that was
// deleted without what it made (--cascade=orphan) leaves pods that nothing else ends.
func (s State) endPodsOf(app string, p *Plan) {
	madeNoMore := len(p.Waits) == 0
	for _, o := range s.of(pods) {
		switch {
		case o.Labels[types.LabelApp] != app:
		case madeNoMore && !o.isDeleted():
			p.Actions = append(p.Actions, Action{Verb: Delete, Kind: pods, Object: o})
		default:
			s.awaitPod(o, p)
		}
	}
}

// waitForPods deletes the pods whose makers are gone: the garbage collector does not, where the
// definition of a maker went before it.
func waitForPods(s State, p *Plan) {
	for _, o := range s.of(pods) {
		if !o.isDeleted() {
			p.Actions = append(p.Actions, Action{Verb: Delete, Kind: pods, Object: o})
			continue
		}
		s.awaitPod(o, p)
	}
}

// theNamespace deletes it, and with it all pods; those whose kubelet does not answer would keep it.
func theNamespace(s State, p *Plan) {
	deleteAll(namespaces)(s, p)
	if len(p.Waits) == 0 {
		return
	}
	for _, o := range s.Objects[pods] {
		if s.isStuck(o) {
			s.awaitPod(o, p)
		}
	}
}

// isStuck tells whether a pod was deleted long ago, and its kubelet does not answer.
func (s State) isStuck(o Object) bool {
	return o.isDeleted() && !s.isAlive(o.Node) && !s.Now.Before(o.DeletedAt.Add(s.Patience))
}

func (s State) awaitPod(o Object, p *Plan) {
	if !s.isStuck(o) {
		p.Waits = append(p.Waits, "pods/"+o.Name)
		return
	}
	p.Actions = append(p.Actions, Action{Verb: Force, Kind: pods, Object: o, Leaves: "node " + o.Node + " does not answer; processes of pod " + o.Name + " may run there until it restarts"})
}

// isAlive tells whether a node's kubelet answers.
func (s State) isAlive(node string) bool {
	return slices.ContainsFunc(s.Objects[kubeNodes], func(o Object) bool { return o.Name == node && o.Ready })
}

// hasDaemon tells whether a daemon runs, on a node or ("") on any.
func (s State) hasDaemon(node string) bool {
	return slices.ContainsFunc(s.of(pods), func(o Object) bool {
		return o.Labels[types.LabelApp] == types.AppManager && o.Ready && !o.isDeleted() && (node == "" || o.Node == node)
	})
}
