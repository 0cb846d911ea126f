package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// waitField waits until a JSON path of an object has the wanted value.
func waitField(ctx context.Context, t *testing.T, c *cluster.Cluster, object, path, want string) {
	t.Helper()
	cluster.Eventually(ctx, t, 30*time.Second, object+" is "+want, func(ctx context.Context) error {
		got, err := c.Kubectl(ctx, "-n", types.Namespace, "get", object, "-o", "jsonpath="+path)
		if err == nil && got != want {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

// TestSettingsOfTheConfigMap: values come from the ConfigMap, errors in it are shown, and an invalid value of a user is
// refused.
func TestSettingsOfTheConfigMap(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	c.DumpIfFailed(t)
	const setting, inForce = "settings.longhorn.io/replica-replenishment-wait-interval", "{.value} {.status.applied} {.status.valueInForce}"
	set := func(ctx context.Context, value string) {
		c.Must(ctx, t, "-n", types.Namespace, "patch", setting, "--type=merge", "-p", fmt.Sprintf(`{"value":%q}`, value))
	}
	before := c.Must(ctx, t, "-n", types.Namespace, "get", setting, "-o", "jsonpath={.value}")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		c.Must(ctx, t, "-n", types.Namespace, "delete", "configmap", types.DefaultSettingsConfigMap, "--ignore-not-found")
		set(ctx, before)
	})
	apply := func(text string) {
		t.Helper()
		manifest := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata:\n  default-setting.yaml: |\n    %s\n",
			types.DefaultSettingsConfigMap, types.Namespace, strings.ReplaceAll(text, "\n", "\n    "))
		require.NoError(t, c.Apply(ctx, manifest))
	}
	apply("replica-replenishment-wait-interval: 613\nnix-setting: 1")
	waitField(ctx, t, c, setting, inForce, "613 true 613")
	cluster.Eventually(ctx, t, 30*time.Second, "an Event names the unknown setting", func(ctx context.Context) error {
		events, err := c.Kubectl(ctx, "-n", types.Namespace, "get", "events", "--field-selector",
			"involvedObject.name="+types.DefaultSettingsConfigMap+",reason="+types.EventDefaultSettingInvalid, "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(events, `setting "nix-setting" does not exist`) {
			err = fmt.Errorf("events: %q", events)
		}
		return err
	})
	set(ctx, "614")
	waitField(ctx, t, c, setting, inForce, "614 true 614")
	_, err := c.Kubectl(ctx, "-n", types.Namespace, "patch", setting, "--type=merge", "-p", `{"value":"soon"}`)
	require.ErrorContains(t, err, `setting replica-replenishment-wait-interval with invalid value "soon": it is not a whole number`)
	waitField(ctx, t, c, setting, inForce, "614 true 614")
	apply("replica-replenishment-wait-interval: 615")
	waitField(ctx, t, c, setting, inForce, "615 true 615")
}

// TestASettingOfAnotherReleaseStopsNoDaemon: the daemons do not change the setting, and a condition says that they do
// not know it.
func TestASettingOfAnotherReleaseStopsNoDaemon(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	c.DumpIfFailed(t)
	const setting = "settings.longhorn.io/setting-of-another-release"
	require.NoError(t, c.Apply(ctx, object("Setting", "setting-of-another-release", `value: "7"`)))
	const status = `{.value} {.status.applied} {.status.conditions[?(@.type=="Valid")].reason}`
	waitField(ctx, t, c, setting, status, "7 false UnknownName")
	c.Must(ctx, t, "-n", types.Namespace, "delete", "pods", "-l", "app=longhorn-manager", "--field-selector", "spec.nodeName="+nodes[0], "--wait", "--timeout=60s")
	c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=120s")
	waitField(ctx, t, c, setting, status, "7 false UnknownName")
	c.Must(ctx, t, "-n", types.Namespace, "delete", setting)
}

// TestTheStorageClassIsKept: the StorageClass follows the ConfigMap, even when a user deletes it.
func TestTheStorageClassIsKept(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	c.DumpIfFailed(t)
	const class = "storageclass/longhorn"
	c.Must(ctx, t, "delete", class)
	waitField(ctx, t, c, class, "{.provisioner} {.parameters.numberOfReplicas} {.allowVolumeExpansion}", types.DriverName+" 3 true")
	c.Must(ctx, t, "patch", class, "--type=merge", "-p", `{"allowVolumeExpansion":false}`)
	waitField(ctx, t, c, class, "{.allowVolumeExpansion}", "true")
}
