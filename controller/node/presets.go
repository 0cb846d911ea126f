package node

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// registration are the settings that decide which disk a node gets when it is registered. This happens once.
var registration = []settings.Name{
	settings.CreateDefaultDiskLabeled, settings.DefaultDataPath, settings.ReservedPercentage,
}

// awaitsSettings reports whether one of these settings still lacks its value from the ConfigMap
// longhorn-default-setting. The leader sets it; the setting's event triggers another sync of the node.
func (c *Controller) awaitsSettings(ctx context.Context) (bool, error) {
	if c.deps.DefaultSettings == nil {
		return false, nil
	}
	cm, err := c.deps.DefaultSettings.Live(ctx, types.DefaultSettingsConfigMap)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the default settings for the registration of the node: %w", err)
	}
	defaults, _ := settings.ReadDefaultSettings(cm) // the leader reports the problems
	for _, name := range registration {
		var s *longhorn.Setting
		if s, err = c.deps.Settings.GetRO(string(name)); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if defaults.Pending(name, s) {
			return true, nil
		}
	}
	return false, nil
}
