package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// render returns Helm's output for the chart with values from a file, as users have them, or Helm's refusal.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	cmd := exec.CommandContext(t.Context(), "../../scripts/helm.sh", "template", "longhorn", "../../deploy/chart", "--namespace", types.Namespace, "--values", file)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestNumbersOfAValuesFileAreWrittenWithoutExponents(t *testing.T) {
	out, err := render(t, `{defaultSettings: {replica-replenishment-wait-interval: 1209600}, storageClass: {parameters: {staleReplicaTimeout: 10000000}}}`)
	require.NoError(t, err, out)
	assert.Contains(t, out, `    replica-replenishment-wait-interval: "1209600"`)
	assert.Contains(t, out, `      staleReplicaTimeout: "10000000"`)
}

// Without values the ConfigMap is part of the release and has no data: an upgrade keeps what users wrote there.
func TestTheConfigMapOfSettingsHasDataOnlyWithValues(t *testing.T) {
	for values, want := range map[string]bool{"{}": false, "{defaultSettings: {default-replica-count: 2}}": true} {
		out, err := render(t, values)
		require.NoError(t, err, out)
		_, after, found := strings.Cut(out, "# Source: longhorn/templates/80-settings.yaml\n")
		require.True(t, found, values)
		text, _, _ := strings.Cut(after, "\n---\n")
		assert.Contains(t, text, "\n  name: longhorn-default-setting\n", values)
		assert.Equal(t, want, strings.Contains(text, "\ndata:\n"), "%s: %s", values, text)
	}
}

func TestTheChartTakesTheNamesThatLonghornsChartGivesSettings(t *testing.T) {
	given := map[string]any{}
	for _, name := range settings.All() {
		d, _ := settings.DefinitionOf(name)
		if !d.ReadOnly {
			given[settings.ChartNames(name)[0]] = d.Default
		}
	}
	values, err := json.Marshal(map[string]any{"defaultSettings": given})
	require.NoError(t, err)
	out, err := render(t, string(values))
	require.NoError(t, err, out)
	for _, name := range settings.All() {
		if d, _ := settings.DefinitionOf(name); !d.ReadOnly {
			assert.Contains(t, out, "\n    "+string(name)+": ")
		}
	}
	for given, name := range map[string]string{"guaranteedInstanceManagerCPU": "guaranteed-instance-manager-cpu", "defaultReplicaCount": "default-replica-count"} {
		out, err := render(t, "{defaultSettings: {"+given+": 4}}")
		require.NoError(t, err, out)
		assert.Contains(t, out, "\n    "+name+`: "4"`)
	}
	out, err = render(t, "{defaultSettings: {defaultReplicaCount: 2, default-replica-count: 3}}")
	require.Error(t, err)
	assert.Contains(t, out, "setting default-replica-count is given twice")
	out, err = render(t, "{defaultSettings: {defaultReplicaCont: 2}}")
	require.Error(t, err)
	assert.Contains(t, out, "defaultReplicaCont")
}

func TestTheChartRefusesParametersThatAreNone(t *testing.T) {
	out, err := render(t, "{storageClass: {parameters: {numberOfReplica: 2}}}")
	require.Error(t, err)
	assert.Contains(t, out, "numberOfReplica")
	out, err = render(t, "{storageClass: {parameters: {numberOfReplicas: 2, csi.storage.k8s.io/fstype: xfs}}}")
	require.NoError(t, err, out)
	assert.Contains(t, out, `      numberOfReplicas: "2"`)
}

func TestTheChartTakesAnImageByItsDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	want := "registry.example/longhorn:v1@" + digest
	for _, values := range []string{
		"{image: {repository: registry.example/longhorn, tag: 'v1@" + digest + "'}}",
		"{image: {repository: registry.example/longhorn, tag: v1, digest: '" + digest + "'}}",
	} {
		out, err := render(t, values)
		require.NoError(t, err, out)
		assert.Equal(t, 3, strings.Count(out, "image: "+want+"\n"), "each container")
		assert.Contains(t, out, "--instance-manager-image="+want+"\n")
	}
	out, err := render(t, "{image: {tag: 'v1@"+digest+"', digest: '"+digest+"'}}")
	require.Error(t, err)
	assert.Contains(t, out, "image.digest: image.tag has a digest too")
}
