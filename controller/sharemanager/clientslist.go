package sharemanager

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ClientsDeps are what Clients needs to write the list of clients; the stores are of the whole cluster.
type ClientsDeps struct {
	queue.Env

	Namespace string
	ConfigMap ConfigMapStore
	Nodes     Reader[*longhorn.Node]
	KubeNodes Reader[*corev1.Node]
	Settings  queue.Events
	// Setting returns the value in force, "" for the default.
	Setting func(settings.Name) string
}

// Clients maintains the ConfigMap types.ShareClientsConfigMap, which the pods of all shares mount. It runs in the
// leader. Create it with NewClients.
type Clients struct {
	deps  ClientsDeps
	queue *queue.Queue[string] // of one key, the ConfigMap's name
	// refusals stores the API server's reasons for refusing the ConfigMap, by its name.
	refusals queue.Refusals[string]
}

// NewClients registers the handlers. Nothing else happens before Run.
func NewClients(d ClientsDeps) (*Clients, error) {
	c := &Clients{deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "share-clients", Env: d.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: d.ConfigMap, Handler: queue.Handler(c.queue, func(*corev1.ConfigMap) []string { return theClients })},
		queue.Watch{Events: d.Nodes, Handler: queue.Changes(c.queue, whenAddresses)},
		queue.Watch{Events: d.KubeNodes, Handler: queue.Changes(c.queue, whenKubeAddresses)},
		queue.Watch{Events: d.Settings, Handler: queue.Handler(c.queue, whenAllowed)},
	)
	if err != nil {
		return nil, err
	}
	c.queue.Add(types.ShareClientsConfigMap) // if the ConfigMap does not exist, no event comes
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Clients) Run(ctx context.Context) error { return c.queue.Run(ctx) }

var theClients = []string{types.ShareClientsConfigMap}

func whenAddresses(was, is *longhorn.Node) []string {
	if was != nil && is != nil && slices.Equal(was.Status.Addresses, is.Status.Addresses) {
		return nil
	}
	return theClients
}

func whenKubeAddresses(was, is *corev1.Node) []string {
	if was != nil && is != nil && slices.Equal(was.Status.Addresses, is.Status.Addresses) && slices.Equal(was.Spec.PodCIDRs, is.Spec.PodCIDRs) {
		return nil
	}
	return theClients
}

func whenAllowed(s *longhorn.Setting) []string {
	if s.Name != string(settings.RWXVolumeAllowedClients) {
		return nil
	}
	return theClients
}

func (c *Clients) sync(ctx context.Context, name string) (queue.Result, error) {
	in, err := c.gather()
	if err != nil {
		return queue.Result{}, err
	}
	present, err := orNone(c.deps.ConfigMap.GetRO(name))
	if err != nil {
		return queue.Result{}, err
	}
	if present != nil && c.deps.ConfigMap.IsStale(present) {
		return queue.Result{}, queue.ErrStale
	}
	if present != nil {
		in.Last = present.Data
	}
	wanted := clientsOf(in)
	switch {
	case present == nil:
		_, err = c.deps.ConfigMap.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.deps.Namespace, Name: name, Labels: map[string]string{types.LabelManagedBy: types.ManagedByManager}},
			Data:       wanted,
		})
		err = staleIfExists(err)
	case !maps.Equal(present.Data, wanted):
		u := present.DeepCopy()
		u.Data = wanted
		_, err = c.deps.ConfigMap.Update(ctx, u)
	default:
		return queue.Result{}, nil
	}
	if err = c.tried(name, err); err != nil {
		return queue.Result{}, fmt.Errorf("write the list of clients that may mount shared volumes: %w", err)
	}
	queue.Log(ctx).Info("Wrote the list of clients that may mount shared volumes")
	return queue.Result{}, nil
}

// tried marks a refusal of the ConfigMap, without which no pod of a share starts, and records its Event once. The
// setting that determines the list exists before the ConfigMap, so the Event refers to the setting.
func (c *Clients) tried(name string, err error) error {
	err = queue.OfChild(err)
	if c.refusals.Tried(name, err, c.deps.Clock.Now()) {
		setting := &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: c.deps.Namespace, Name: string(settings.RWXVolumeAllowedClients)}}
		c.deps.Recorder.Event(setting, corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
	}
	return err
}

func (c *Clients) gather() (ClientsInput, error) {
	in := ClientsInput{Nodes: map[string]*longhorn.Node{}}
	var err error
	in.Allowed, err = types.ParseShareClients(settings.Values(c.deps.Setting).Text(settings.RWXVolumeAllowedClients))
	if err != nil {
		return in, err
	}
	if in.KubeNodes, err = c.deps.KubeNodes.List(labels.Everything()); err != nil {
		return in, err
	}
	nodes, err := c.deps.Nodes.List(labels.Everything())
	for _, n := range nodes {
		in.Nodes[n.Name] = n
	}
	return in, err
}
