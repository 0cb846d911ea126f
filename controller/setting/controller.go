package setting

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store holds all settings.
type Store interface {
	datastore.WatchedGetter[*longhorn.Setting]
	datastore.Creator[*longhorn.Setting]
	datastore.Updater[*longhorn.Setting]
	datastore.StatusWriter[*longhorn.Setting]
}

// ConfigMaps reads ConfigMaps from the API server and creates them.
type ConfigMaps interface {
	datastore.LiveReader[*corev1.ConfigMap]
	datastore.Creator[*corev1.ConfigMap]
}

// Deps are the dependencies of a Controller.
type Deps struct {
	queue.Env

	Namespace string
	Settings  Store
	Defaults  datastore.WatchedReader[*corev1.ConfigMap] // of the ConfigMap longhorn-default-setting, if it exists
	Pods      datastore.WatchedLister[*corev1.Pod]       // of the namespace
	// ConfigMaps may be nil: then no ConfigMap is created.
	ConfigMaps ConfigMaps
	// Classes may be nil: then the controller assumes that every class exists.
	Classes datastore.LiveReader[*schedulingv1.PriorityClass]
}

// classAgain is the time until the next check whether the PriorityClass in a setting exists: the class is not
// watched.
const classAgain = 5 * time.Minute

// Controller manages the settings. It runs in the leader.
type Controller struct {
	deps  Deps
	queue *queue.Queue[key]
	// told are the problems of the ConfigMap that Events have reported. Only sync uses it, and one sync runs at a
	// time.
	told told
	// toldResource is the same for the ConfigMap longhorn-default-resource.
	toldResource told
	// refusals holds the API server's refusals of settings, by name.
	refusals queue.Refusals[string]
}

// key is the name of a setting, or the ConfigMap.
type key struct {
	setting   string
	configMap bool
}

func (k key) String() string {
	if k.configMap {
		return "ConfigMap " + types.DefaultSettingsConfigMap
	}
	return k.setting
}

// told are the problems of one version of a ConfigMap.
type told struct {
	uid      kubetypes.UID
	problems []string
}

// New creates a Controller. It works when Run is called.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[key]{Name: "setting", Env: deps.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: deps.Settings, Handler: queue.Handler(c.queue, func(s *longhorn.Setting) []key { return []key{{setting: s.Name}} })},
		queue.Watch{Events: deps.Defaults, Handler: queue.Handler(c.queue, func(*corev1.ConfigMap) []key { return allKeys() })},
		queue.Watch{Events: deps.Pods, Handler: queue.Changes(c.queue, whenPod)},
	)
	if err != nil {
		return nil, err
	}
	for _, k := range allKeys() {
		c.queue.Add(k) // a missing object sends no event
	}
	return c, nil
}

func allKeys() []key {
	keys := []key{{configMap: true}}
	for _, name := range settings.All() {
		keys = append(keys, key{setting: string(name)})
	}
	return keys
}

// whenPod names the settings that apply to a pod, when the pod is new, has ended or is about to end.
func whenPod(was, is *corev1.Pod) []key {
	if was != nil && is != nil && hasNotEnded(was) == hasNotEnded(is) {
		return nil
	}
	pod := is
	if pod == nil {
		pod = was
	}
	var keys []key
	for name := range settings.SettingsOfPod(pod) {
		keys = append(keys, key{setting: string(name)})
	}
	return keys
}

// Run works until ctx is done. The cache of settings must be filled.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, k key) (queue.Result, error) {
	cm, err := c.deps.Defaults.GetRO(types.DefaultSettingsConfigMap)
	if apierrors.IsNotFound(err) {
		cm, err = nil, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	defaults, problems := settings.ReadDefaultSettings(cm)
	if k.configMap {
		c.told = c.tell(c.told, cm, problems)
		return c.keepConfigMaps(ctx, cm)
	}
	s, err := c.deps.Settings.Get(k.setting)
	if apierrors.IsNotFound(err) {
		s, err = nil, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if s != nil && c.deps.Settings.IsStale(s) {
		return queue.Result{}, queue.ErrStale
	}
	in := Input{Name: settings.Name(k.setting), Setting: s, Defaults: defaults, Now: c.deps.Clock.Now()}
	if settings.IsPodSetting(in.Name) {
		if in.Pods, err = c.deps.Pods.List(labels.Everything()); err != nil {
			return queue.Result{}, err
		}
	}
	var again queue.Result
	if class := settings.ValueInForce(orEmpty(s)); in.Name == settings.PriorityClass && class != "" && c.deps.Classes != nil {
		again.RequeueAfter = classAgain
		_, err := c.deps.Classes.Live(ctx, class)
		if in.ClassMissing = apierrors.IsNotFound(err); err != nil && !in.ClassMissing && !apierrors.IsForbidden(err) { // with manifests of an earlier release
			return again, fmt.Errorf("read PriorityClass %s: %w", class, err)
		}
	}
	return again, c.showRefusal(k.setting, s, cm, c.apply(ctx, s, plan(in)))
}

// showRefusal records an Event if the API server refuses the write of a setting. The Event is on the setting, or on
// the ConfigMap if the setting has no object yet. It returns err.
func (c *Controller) showRefusal(name string, s *longhorn.Setting, cm *corev1.ConfigMap, err error) error {
	if !c.refusals.Tried(name, err, c.deps.Clock.Now()) {
		return err
	}
	switch {
	case s != nil:
		c.deps.Recorder.Event(s, corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
	case cm != nil:
		c.deps.Recorder.Event(cm, corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
	}
	return err
}

func orEmpty(s *longhorn.Setting) *longhorn.Setting {
	if s == nil {
		return &longhorn.Setting{}
	}
	return s
}

// tell records the problems of a ConfigMap as Events on it, once until they change. It returns the reported
// problems.
func (c *Controller) tell(was told, cm *corev1.ConfigMap, problems []error) told {
	if cm == nil {
		return told{}
	}
	now := told{uid: cm.UID}
	for _, p := range problems {
		now.problems = append(now.problems, p.Error())
		if was.uid != cm.UID || !slices.Contains(was.problems, p.Error()) {
			c.deps.Recorder.Event(cm, corev1.EventTypeWarning, types.EventDefaultSettingInvalid, p.Error())
		}
	}
	return now
}

func (c *Controller) apply(ctx context.Context, s *longhorn.Setting, p Plan) error {
	switch {
	case p.Create != nil:
		p.Create.Namespace = c.deps.Namespace
		if _, err := c.deps.Settings.Create(ctx, p.Create); err != nil {
			return queue.OfChild(err)
		}
		queue.Log(ctx).WithField("value", p.Create.Value).Info("Created a setting")
	case p.Update != nil:
		if _, err := c.deps.Settings.Update(ctx, p.Update); err != nil {
			return queue.OfChild(err)
		}
		queue.Log(ctx).WithField("value", p.Update.Value).Info("Set a setting to its value from the ConfigMap")
	case p.Status != nil:
		return c.writeStatus(ctx, s, *p.Status)
	}
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, s *longhorn.Setting, status longhorn.SettingStatus) error {
	_, isWritten, err := datastore.WriteStatus(ctx, c.deps.Settings, s, func(s *longhorn.Setting) *longhorn.SettingStatus { return &s.Status }, status)
	if !isWritten {
		return err
	}
	was, now := types.FindCondition(s.Status.Conditions, types.ConditionValid), types.FindCondition(status.Conditions, types.ConditionValid)
	switch {
	case now.Message == was.Message:
	case now.Status != longhorn.ConditionTrue: // also when the status stays: another invalid value has another message
		c.deps.Recorder.Event(s, corev1.EventTypeWarning, types.EventReason(now), now.Message)
	case was.Status == longhorn.ConditionFalse:
		c.deps.Recorder.Event(s, corev1.EventTypeNormal, now.Type, now.Message)
	}
	return nil
}
