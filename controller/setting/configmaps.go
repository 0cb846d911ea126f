package setting

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// configMapKey is the prefix of the keys of ConfigMaps among the refusals. The other keys are names of settings.
const configMapKey = "ConfigMap "

// configMapsAgain is the time until the controller reads longhorn-default-resource again, which it does not watch.
const configMapsAgain = 5 * time.Minute

// keepConfigMaps creates the two ConfigMaps that clients of Longhorn change in place, if they are missing. The
// manifest must not contain them: kubectl apply would remove what an operator applied before. A create never changes
// an existing object. defaults is longhorn-default-setting, nil if the cache has none.
func (c *Controller) keepConfigMaps(ctx context.Context, defaults *corev1.ConfigMap) (queue.Result, error) {
	if c.deps.ConfigMaps == nil {
		return queue.Result{}, nil
	}
	if defaults == nil {
		if err := c.createConfigMap(ctx, types.DefaultSettingsConfigMap, types.DefaultSettingsKey); err != nil {
			return queue.Result{}, err
		}
	}
	again := queue.Result{RequeueAfter: configMapsAgain}
	resource, err := c.deps.ConfigMaps.Live(ctx, types.DefaultResourceConfigMap)
	switch {
	case apierrors.IsForbidden(err): // with manifests of an earlier release
		return queue.Result{}, nil
	case apierrors.IsNotFound(err):
		return again, c.createConfigMap(ctx, types.DefaultResourceConfigMap, types.DefaultResourceKey)
	case err != nil:
		return again, fmt.Errorf("read ConfigMap %s: %w", types.DefaultResourceConfigMap, err)
	}
	var problems []error
	if err := settings.CheckDefaultResource(resource); err != nil {
		problems = append(problems, err)
	}
	c.toldResource = c.tell(c.toldResource, resource, problems)
	return again, nil
}

// createConfigMap creates a ConfigMap with an empty text under the key. If the ConfigMap exists by then, it stays
// unchanged. A refusal is recorded as an Event of the missing ConfigMap.
func (c *Controller) createConfigMap(ctx context.Context, name, key string) error {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: c.deps.Namespace, Labels: map[string]string{types.InstallationLabel: types.InstallationValue},
		},
		Data: map[string]string{key: ""},
	}
	_, err := c.deps.ConfigMaps.Create(ctx, cm)
	err = queue.OfChild(err)
	if c.refusals.Tried(configMapKey+name, err, c.deps.Clock.Now()) {
		c.deps.Recorder.Event(cm, corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("create ConfigMap %s: %w", name, err)
	}
	queue.Log(ctx).WithField("configMap", name).Info("Created an empty ConfigMap")
	return nil
}
