package uninstall

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Object is one object, with the fields that matter for its removal.
type Object struct {
	Name, Namespace string
	UID             string
	Labels          map[string]string
	DeletedAt       time.Time // zero: it is not being deleted
	Finalizers      []string
	Node            string // of replicas and pods
	Ready           bool   // of pods and Kubernetes nodes
	// ReadySince is the time of the last change of Ready.
	ReadySince  time.Time
	Phase       string // of pods and PersistentVolumes
	Provisioner string // of StorageClasses; of Kubernetes' VolumeAttachments the attacher, of PersistentVolumes the driver
	Volume      string // of PersistentVolumes, engines and replicas: the volume's name
	// ClaimNamespace and Claim, of PersistentVolumes, name the bound claim.
	ClaimNamespace, Claim string
	Value                 string // of settings
	Path                  string // of replicas that were created: the directory of their data
	Disk                  string // of replicas: the UUID
	// Reason and Message are set for replicas that are not open and cannot be opened, and for volumes whose device is in
	// use. They come from a condition.
	Reason, Message string
	ReadyDisks      []string // of nodes: the UUIDs
}

// volume returns the volume of an engine or a replica.
func (o Object) volume() string { return cmp.Or(o.Volume, o.Labels[types.LabelVolume]) }

func (o Object) isDeleted() bool { return !o.DeletedAt.IsZero() }

// isHeld reports whether the object has a finalizer of this product.
func (o Object) isHeld(k Kind) bool {
	return slices.ContainsFunc(o.Finalizers, func(f string) bool { return isInstallationFinalizer(k, f) })
}

// State is everything that exists in the cluster.
type State struct {
	Namespace string
	// Forced: the data may be deleted although no setting allows it, because the setting may already be gone.
	Forced  bool
	Objects map[Kind][]Object
	// Elsewhere are DaemonSets and objects of this product's kinds in other namespaces than the given one.
	Elsewhere map[Kind][]Object
	// Users are the pods that may have a volume mounted, by the volume's name, sorted.
	Users map[string][]Object
	Now   time.Time
	// Patience is Options.Patience.
	Patience time.Duration
}

// Verb is the kind of an action.
type Verb string

// The verbs. Strip removes this product's finalizer. Before that, a second look at the live objects must show the
// same deletion. For objects that represent data, it must also show that no daemon can remove them properly.
const (
	Delete Verb = "delete"
	Strip  Verb = "strip"
	Force  Verb = "force" // delete a pod whose kubelet does not answer
)

// Action is one step. Each step can be repeated.
type Action struct {
	Verb Verb
	Kind Kind
	Object
	// Leaves describes what stays behind; "": nothing.
	Leaves string
}

// Plan is the plan for one round.
type Plan struct {
	Stage   string
	Actions []Action
	// Waits names the objects whose removal is in progress.
	Waits []string
	// Refused is the reason why the round does nothing at all.
	Refused string
	// Removed names the objects that the round deleted.
	Removed []string
	// Done: nothing is left, except what Stays names.
	Done  bool
	Stays string
}

// stage is a stage of the removal. It must be complete before the next stage starts.
type stage struct {
	name string
	step func(s State, p *Plan)
}

// stages are in their order. A stage is complete when it has nothing to do and nothing to wait for.
var stages = []stage{
	// This is first: while a pod uses a volume, the installation stays as it is.
	{"pods that use volumes", usersOfVolumes},
	// The policies still protect the data. If a volume is created in the meantime, a later round sees
	// it, and refuses unless the deletion is confirmed. No policy refuses the deletions of this stage. The manager
	// creates the ConfigMap again while its template exists, so one round deletes both.
	{"the StorageClass's ConfigMap", deleteAll(configMaps)},
	{"the creation of new volumes", newVolumes},
	// The policies would refuse the following deletions, which are confirmed.
	{"admission policies", deleteAll(policyBindings, policies)},
	{"volumes and their data", volumesAndData},
	// While the CSI controller ran, it would have removed them.
	{"PersistentVolumes", lostPersistentVolumes},
	// Their volumes are gone, so they stand for no data.
	{"snapshots", deleteAll(snapshots)},
	{"attachments and share managers", deleteAll(shareManagers, attachments)},
	// Before the objects that the daemons would create again.
	{"the manager and the CSI driver", workloads},
	{"instance managers", deleteAll(instanceManagers, budgets)},
	{"pods", waitForPods},
	{"nodes and settings", nodesAndSettings},
	{"definitions", deleteAll(definitions)},
	{"the driver's registration", deleteAll(kubeAttachments, drivers)},
	{"the namespace", theNamespace},
	// Last, so that a namespace in deletion always has the rights that its deletion needs.
	{"roles", deleteAll(clusterBindings, clusterRoles)},
}

// strips reports whether the plan contains the same Strip action.
func (p Plan) strips(a Action) bool {
	return slices.ContainsFunc(p.Actions, func(b Action) bool {
		return b.Verb == Strip && b.Kind == a.Kind && b.Name == a.Name && b.UID == a.UID
	})
}

func plan(s State) Plan {
	if reason := s.refusal(); reason != "" {
		return Plan{Refused: reason}
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
			return fmt.Sprintf("namespace %s stays: it has no label %s=%s; if only the installation used it, delete it manually", o.Name, types.InstallationLabel, types.InstallationValue)
		}
	}
	return ""
}

// of returns the objects of a kind that belong to the installation.
func (s State) of(k Kind) []Object {
	var objects []Object
	for _, o := range s.Objects[k] {
		if belongsToInstallation(k, o, s.Namespace) {
			objects = append(objects, o)
		}
	}
	return objects
}

// deleteAll deletes all objects of these kinds, and removes this product's finalizer from objects in deletion.
func deleteAll(kinds ...Kind) func(State, *Plan) {
	return func(s State, p *Plan) {
		for _, k := range kinds {
			for _, o := range s.of(k) {
				p.end(k, o, true, "")
			}
		}
	}
}

// end deletes an object, or removes this product's finalizer if strip allows it, or waits until the object is gone.
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

// waited names an object that the plan waits for, with the message of the object's condition.
func waited(k Kind, o Object) string {
	if o.Message != "" {
		return fmt.Sprintf("%s/%s (%s: %s)", k.Resource, o.Name, o.Reason, o.Message)
	}
	return fmt.Sprintf("%s/%s", k.Resource, o.Name)
}

func nodesAndSettings(s State, p *Plan) {
	deleteAll(append(unknown(s.of(definitions)), nodes, globalSettings)...)(s, p)
}

// newVolumes deletes the components that provision volumes, and waits for their pods, which finish their work. The
// manager creates the StorageClass again while the ConfigMap exists, so an earlier stage deleted the ConfigMap.
func newVolumes(s State, p *Plan) {
	deleteAll(storageClasses)(s, p)
	for _, k := range []Kind{deployments, replicaSets} { // a ReplicaSet may exist without its Deployment
		for _, o := range s.of(k) {
			p.end(k, o, false, "")
		}
		if len(p.Actions) > 0 {
			return
		}
	}
	s.endPodsOf(types.AppCSIController, p)
}

// workloads deletes the DaemonSets and the objects in front of them. The CSI node plugins are deleted together with
// the daemons. Until then kubelets need them to unmount volumes in use.
func workloads(s State, p *Plan) {
	deleteAll(deployments, daemonSets, services)(s, p)
	if len(p.Actions) == 0 {
		s.endPodsOf(types.AppManager, p)
	}
}

// endPodsOf waits for the pods of an app, and deletes them if their creators are gone. If a creator was deleted with
// --cascade=orphan, no other component deletes its pods.
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

// waitForPods deletes the pods without a creator. The garbage collector does not delete them if the definition of the
// creator was deleted before them.
func waitForPods(s State, p *Plan) {
	for _, o := range s.of(pods) {
		if !o.isDeleted() {
			p.Actions = append(p.Actions, Action{Verb: Delete, Kind: pods, Object: o})
			continue
		}
		s.awaitPod(o, p)
	}
}

// theNamespace deletes the namespace, which deletes all pods. It deletes pods by force if their kubelet does not
// answer, because they would block the deletion.
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

// isStuck reports whether a pod was deleted long ago and its kubelet has not answered for as long.
func (s State) isStuck(o Object) bool {
	return o.isDeleted() && s.silence(o.Node) >= max(s.Patience, 1) && !s.Now.Before(o.DeletedAt.Add(s.Patience))
}

func (s State) awaitPod(o Object, p *Plan) {
	if !s.isStuck(o) {
		p.Waits = append(p.Waits, "pods/"+o.Name)
		return
	}
	p.Actions = append(p.Actions, Action{Verb: Force, Kind: pods, Object: o, Leaves: "node " + o.Node + " does not answer; processes of pod " + o.Name + " may run there until the node restarts"})
}

// silence returns how long a node's kubelet has not answered; 0: it answers. A node without an object never answers.
func (s State) silence(node string) time.Duration {
	for _, o := range s.Objects[kubeNodes] {
		switch {
		case o.Name != node:
		case o.Ready:
			return 0
		default:
			return max(s.Now.Sub(o.ReadySince), 1)
		}
	}
	return math.MaxInt64
}

// hasDaemon reports whether a daemon runs on a node, or, if node is "", on any node.
func (s State) hasDaemon(node string) bool {
	return slices.ContainsFunc(s.of(pods), func(o Object) bool {
		return o.Labels[types.LabelApp] == types.AppManager && o.Ready && !o.isDeleted() && (node == "" || o.Node == node)
	})
}
