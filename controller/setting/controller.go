package setting

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store holds all settings.
type Store interface {
	Get(name string) (*longhorn.Setting, error)
	Create(ctx context.Context, obj *longhorn.Setting) (*longhorn.Setting, error)
	UpdateStatus(ctx context.Context, obj *longhorn.Setting) (*longhorn.Setting, error)
	IsStale(obj *longhorn.Setting) bool
	queue.Events
}

// Deps are what a Controller works with.
type Deps struct {
	queue.Env

	Namespace string
	Settings  Store
}

// Controller keeps the settings. It runs in the leader.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string] // of settings' names
}

// New makes a Controller; it works when Run is called.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{Name: "setting", Env: deps.Env, Sync: c.sync})
	if err := c.queue.Watch(queue.Watch{Events: deps.Settings, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Setting])}); err != nil {
		return nil, err
	}
	for _, name := range types.Settings() {
		c.queue.Add(string(name)) // what is missing sends no event
	}
	return c, nil
}

// Run works until ctx ends. The cache must be filled.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	s, err := c.deps.Settings.Get(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, c.create(ctx, types.SettingName(name))
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.deps.Settings.IsStale(s) {
		return queue.Result{}, queue.ErrStale
	}
	before := s.Status
	s.Status = plan(s, c.deps.Clock.Now())
	if equality.Semantic.DeepEqual(before, s.Status) {
		return queue.Result{}, nil
	}
	if _, err := c.deps.Settings.UpdateStatus(ctx, s); err != nil {
		return queue.Result{}, err
	}
	// Not only when the status flips: another bad value has another message.
	if now := types.FindCondition(s.Status.Conditions, types.ConditionValid); now.Status != longhorn.ConditionTrue {
		c.deps.Recorder.Event(s, corev1.EventTypeWarning, now.Type, now.Message)
	} else if was := types.FindCondition(before.Conditions, types.ConditionValid); was.Status == longhorn.ConditionFalse {
		c.deps.Recorder.Event(s, corev1.EventTypeNormal, now.Type, now.Message)
	}
	return queue.Result{}, nil
}

// create makes a missing setting with its default; of an unknown one nothing is left.
func (c *Controller) create(ctx context.Context, name types.SettingName) error {
	definition, ok := types.DefinitionOf(name)
	if !ok {
		return nil
	}
	_, err := c.deps.Settings.Create(ctx, &longhorn.Setting{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.deps.Namespace, Name: string(name)},
		Value:      definition.Default,
	})
	if err != nil {
		return err
	}
	queue.Log(ctx).WithField("value", definition.Default).Info("Made a setting with its default")
	return nil
}
