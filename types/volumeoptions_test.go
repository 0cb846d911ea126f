package types

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sigs.k8s.io/yaml"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// TestVolumeOptionTable checks that each field of VolumeOptions has exactly one row, and that the row reads and writes
// this field, and the field of a Volume with the same name.
func TestVolumeOptionTable(t *testing.T) {
	fields := reflect.TypeFor[VolumeOptions]()
	require.Len(t, VolumeOptionTable, fields.NumField())
	for i, o := range VolumeOptionTable {
		t.Run(o.Name, func(t *testing.T) {
			field := fields.Field(i).Name
			require.True(t, strings.EqualFold(field, o.Name), "row %d describes %s, but field %d is %s", i, o.Name, i, field)
			value := o.Values[len(o.Values)-1]

			var options VolumeOptions
			o.Set(&options, value)
			assert.Equal(t, value, reflect.ValueOf(options).Field(i).Interface())
			assert.Equal(t, value, o.Get(options))

			var spec longhorn.VolumeSpec
			SetVolumeOptions(&spec, options)
			assert.Equal(t, options, VolumeOptionsOf(&spec))
			text, err := json.Marshal(spec)
			require.NoError(t, err)
			var stored map[string]any
			require.NoError(t, json.Unmarshal(text, &stored))
			for _, other := range VolumeOptionTable {
				want := any(nil)
				if other.Name == o.Name {
					want = value
				}
				assert.Equal(t, want, stored[other.Name], "%s in the Volume", other.Name)
			}

			found, ok := FindVolumeOption(o.Name)
			assert.True(t, ok)
			assert.Equal(t, o.Name, found.Name)
		})
	}
	_, ok := FindVolumeOption("nix")
	assert.False(t, ok)
}

func TestVolumeOptionsThatAreNotGivenGetTheirDefaults(t *testing.T) {
	options := VolumeOptions{ReplicaZoneSoftAntiAffinity: "enabled", ReplicaAutoBalance: "best-effort"}
	FillVolumeOptions(&options)
	assert.Equal(t, VolumeOptions{
		ReplicaSoftAntiAffinity: "ignored", ReplicaZoneSoftAntiAffinity: "enabled", ReplicaDiskSoftAntiAffinity: "ignored", ReplicaAutoBalance: "best-effort",
	}, options)
}

// TestSetVolumeOptionsKeepsOtherFields: only the options of the spec change, and an empty option stays empty.
func TestSetVolumeOptionsKeepsOtherFields(t *testing.T) {
	spec := longhorn.VolumeSpec{NumberOfReplicas: 3, NodeSelector: []string{"storage"}, ReplicaAutoBalance: longhorn.AutoBalanceDisabled}
	SetVolumeOptions(&spec, VolumeOptions{ReplicaSoftAntiAffinity: "enabled"})
	assert.Equal(t, longhorn.VolumeSpec{NumberOfReplicas: 3, NodeSelector: []string{"storage"}, ReplicaSoftAntiAffinity: longhorn.AntiAffinityEnabled}, spec)
}

// TestTheDefinitionOfVolumesHasTheOptions: the API server accepts the same values, and has the same defaults.
func TestTheDefinitionOfVolumesHasTheOptions(t *testing.T) {
	text, err := os.ReadFile("../k8s/crds/longhorn.io_volumes.yaml")
	require.NoError(t, err)
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Spec struct{ Properties map[string]json.RawMessage }
						}
					}
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &definition))
	require.Len(t, definition.Spec.Versions, 1)
	fields := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec.Properties
	for _, o := range VolumeOptionTable {
		var field struct {
			Enum    []string
			Default string
		}
		require.NoError(t, json.Unmarshal(fields[o.Name], &field), o.Name)
		assert.ElementsMatch(t, o.Values, field.Enum, "the values of %s", o.Name)
		assert.Equal(t, o.Values[0], field.Default, "the default of %s", o.Name)
	}
}

func TestThePageOfSettingsNamesEachVolumeOption(t *testing.T) {
	page, err := os.ReadFile("../docs/SETTINGS.md")
	require.NoError(t, err)
	_, parameters, found := strings.Cut(string(page), "\nParameters of a StorageClass: ")
	require.True(t, found)
	parameters, _, _ = strings.Cut(parameters, "\n\n")
	for _, o := range VolumeOptionTable {
		assert.Contains(t, parameters, "`"+o.Name+"`")
	}
}

func TestEachVolumeOptionIsAParameterOfAStorageClass(t *testing.T) {
	for _, o := range VolumeOptionTable {
		for _, value := range o.Values {
			hasEffect, err := CheckClassParameter(o.Name, value)
			assert.NoError(t, err)
			assert.True(t, hasEffect, "%s=%s", o.Name, value)
		}
		_, err := CheckClassParameter(o.Name, "nix")
		assert.EqualError(t, err, "parameter "+o.Name+`: value "nix" must be one of `+strings.Join(o.Values, ", "))
	}
}
