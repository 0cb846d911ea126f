package api

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestEachVolumeOptionIsOnTheWire: the fields on the wire have the names of the options.
func TestEachVolumeOptionIsOnTheWire(t *testing.T) {
	var names []string
	for _, o := range types.VolumeOptionTable {
		names = append(names, o.Name)
	}
	assert.Equal(t, names, keysOf(reflect.TypeFor[v1.VolumeOptions]()))
	assert.Equal(t, names, keysOf(reflect.TypeFor[v1.VolumeCreateOptions]()))
	create := reflect.TypeFor[v1.VolumeCreateOptions]()
	for i := range create.NumField() {
		assert.Equal(t, names[i]+",omitempty", create.Field(i).Tag.Get("json"), "earlier managers refuse a field that they do not know")
	}
	text, err := json.Marshal(v1.Volume{})
	require.NoError(t, err)
	for _, name := range names {
		assert.Contains(t, string(text), `"`+name+`":`, "JSON lacks a name that another embedded struct has, too")
	}
	for _, u := range optionUpdates {
		assert.Equal(t, []string{u.option.Name}, keysOf(reflect.TypeOf(u.wire)), "the input of %s", u.option.Name)
	}
}
