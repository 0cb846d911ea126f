package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// maxTable is the width of a terminal in which the tables of kubectl get must not wrap.
const maxTable = 100

// widerTables have the columns that Longhorn's users know, whatever their width.
var widerTables = map[string]int{"Snapshot": 150}

// columnGap is the number of spaces that kubectl writes between two columns.
const columnGap = 3

// column is a column of kubectl get.
type column struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Priority int    `json:"priority"`
	JSONPath string `json:"jsonPath"`
}

// columnsOf returns the columns of each kind, without the column NAME.
func columnsOf(t *testing.T) map[string][]column {
	t.Helper()
	files, err := filepath.Glob("../k8s/crds/*.yaml")
	require.NoError(t, err)
	kinds := map[string][]column{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var d struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Columns []column `json:"additionalPrinterColumns"`
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &d), file)
		require.Len(t, d.Spec.Versions, 1, file)
		kinds[d.Spec.Names.Kind] = d.Spec.Versions[0].Columns
	}
	return kinds
}

// cell returns the text that kubectl shows in a column.
func cell(t *testing.T, c column, object map[string]any) string {
	t.Helper()
	path := jsonpath.New(c.Name).AllowMissingKeys(true)
	require.NoError(t, path.Parse("{"+c.JSONPath+"}"), c.Name)
	results, err := path.FindResults(object)
	require.NoError(t, err, c.Name)
	if len(results) == 0 || len(results[0]) == 0 {
		return ""
	}
	if c.Type == "date" {
		return "125d" // kubectl shows an age
	}
	var text bytes.Buffer
	require.NoError(t, path.PrintResults(&text, results[0][:1]), c.Name)
	return text.String()
}

const (
	tableVolume  = "pvc-6b2b21d8-9f4e-4f0e-b0b3-3a6f0c2f7d15"
	tableNode    = "worker-1"
	tableTime    = "2026-11-24T03:18:55Z"
	tableManager = "instance-manager-0123456789abcdef0123456789abcdef"
)

func conditions(kinds ...string) []longhorn.Condition {
	var list []longhorn.Condition
	for _, kind := range kinds {
		list = append(list, longhorn.Condition{Type: kind, Status: longhorn.ConditionFalse})
	}
	return list
}

// tableObjects are objects with realistic values that are long. Their names are the keys.
func tableObjects() map[string]map[string]any {
	instance := longhorn.InstanceSpec{VolumeName: tableVolume, VolumeSize: 10 << 30, NodeID: tableNode, DataEngine: longhorn.DataEngineV1}
	running := longhorn.InstanceStatus{CurrentState: longhorn.InstanceStateRunning, InstanceManagerName: tableManager}
	return map[string]map[string]any{
		"Volume": {tableVolume: &longhorn.Volume{
			Spec: longhorn.VolumeSpec{
				Size: 10 << 30, NumberOfReplicas: 3, DataLocality: longhorn.DataLocalityBestEffort,
				AccessMode: longhorn.AccessModeReadWriteOnce, DataEngine: longhorn.DataEngineV1,
			},
			Status: longhorn.VolumeStatus{
				State: longhorn.VolumeStateAttached, Robustness: longhorn.VolumeRobustnessDegraded, CurrentNodeID: tableNode,
				Conditions:       conditions(types.ConditionScheduled),
				KubernetesStatus: longhorn.KubernetesStatus{Namespace: "production", PVCName: "data-postgres-0", PVStatus: "Bound"},
			},
		}},
		"Replica": {tableVolume + "-r-a88c4051": &longhorn.Replica{
			Spec: longhorn.ReplicaSpec{
				InstanceSpec: instance, HealthyAt: tableTime, FailedAt: tableTime,
				DiskID: "3f6e2a0c-8a0f-4f0e-9d5c-2b1a7c4d9e01", DiskPath: "/var/lib/longhorn",
			},
			Status: longhorn.ReplicaStatus{InstanceStatus: running},
		}},
		"Engine": {tableVolume + "-e-0": &longhorn.Engine{
			Spec:   longhorn.EngineSpec{InstanceSpec: instance},
			Status: longhorn.EngineStatus{InstanceStatus: running, Generation: 1234},
		}},
		"Node": {"ip-10-0-101-123.eu-central-1.compute.internal": &longhorn.Node{
			Spec: longhorn.NodeSpec{AllowScheduling: true},
			Status: longhorn.NodeStatus{
				Zone: "eu-central-1a", Conditions: conditions(types.ConditionReady, types.ConditionSchedulable),
			},
		}},
		"InstanceManager": {tableManager: &longhorn.InstanceManager{
			Spec: longhorn.InstanceManagerSpec{NodeID: tableNode, Type: longhorn.InstanceManagerTypeAllInOne, DataEngine: longhorn.DataEngineV1},
			Status: longhorn.InstanceManagerStatus{
				CurrentState: longhorn.InstanceManagerStateRunning, Version: "v1.10.0-rc1", Conditions: conditions(types.ConditionDrainable),
			},
		}},
		"VolumeAttachment": {tableVolume: &longhorn.VolumeAttachment{
			Spec:   longhorn.VolumeAttachmentSpec{Volume: tableVolume},
			Status: longhorn.VolumeAttachmentStatus{Nodes: tableNode + "," + tableNode + ",+62", Satisfied: "12/64"},
		}},
		"ShareManager": {tableVolume: &longhorn.ShareManager{Status: longhorn.ShareManagerStatus{
			State: longhorn.ShareManagerStateRunning, CurrentNode: tableNode, Endpoint: "nfs://10.97.114.212/" + tableVolume,
			CurrentImage: "registry.example/longhorn-manager:v1.10.0",
		}}},
		"Snapshot": {"before-the-upgrade": &longhorn.Snapshot{
			Spec: longhorn.SnapshotSpec{Volume: tableVolume, CreateSnapshot: true},
			Status: longhorn.SnapshotStatus{
				CreationTime: tableTime, ReadyToUse: true, RestoreSize: 1 << 40, Size: 1 << 40,
			},
		}},
		"Setting": settingsTable(),
	}
}

// settingsTable has each setting with its default.
func settingsTable() map[string]any {
	table := map[string]any{}
	for _, d := range registry() {
		table[string(d.Name)] = &longhorn.Setting{Value: d.Default, Status: longhorn.SettingStatus{ValueInForce: d.Default}}
	}
	return table
}

// TestTablesFitATerminal checks that the table of each kind has at most 100 characters, except widerTables, and that every column shows
// something. Columns with a priority above 0 are shown only with -o wide.
func TestTablesFitATerminal(t *testing.T) {
	objects := tableObjects()
	for kind, columns := range columnsOf(t) {
		t.Run(kind, func(t *testing.T) {
			require.NotEmpty(t, objects[kind], "the test has no object of this kind")
			widths, isFilled := make([]int, len(columns)), make([]bool, len(columns))
			nameWidth := len("NAME")
			for name, object := range objects[kind] {
				nameWidth = max(nameWidth, len(name))
				fields := asJSON(t, object)
				for i, c := range columns {
					text := cell(t, c, fields)
					widths[i] = max(widths[i], len(c.Name), len(text))
					isFilled[i] = isFilled[i] || text != ""
				}
			}
			width, table := nameWidth, fmt.Sprintf("NAME %d", nameWidth)
			for i, c := range columns {
				assert.True(t, isFilled[i], "column %s is always empty: %s", c.Name, c.JSONPath)
				assert.NotContains(t, c.Name, " ", "a header with a space looks like two columns")
				if c.Priority == 0 {
					width += columnGap + widths[i]
					table += fmt.Sprintf(", %s %d", c.Name, widths[i])
				}
			}
			assert.LessOrEqual(t, width, max(maxTable, widerTables[kind]), table)
		})
	}
}

// asJSON returns the fields of an object as the API server stores them, with the time of its creation.
func asJSON(t *testing.T, object any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	fields["metadata"] = map[string]any{"creationTimestamp": tableTime}
	return fields
}
