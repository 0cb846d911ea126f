package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Longhorn's clients read these settings without checking that they exist.
func TestSettingsWithAFixedValue(t *testing.T) {
	for name, want := range map[string]string{
		"v1-data-engine": "true", "v2-data-engine": "false", "auto-salvage": "true", "disable-revision-counter": "true",
	} {
		b := newBench(t)
		view, err := b.Setting(name)
		require.NoError(t, err)
		assert.Equal(t, want, view.Value, name)
		assert.True(t, view.Definition.ReadOnly, name)

		for _, same := range []string{want, ""} {
			view, err = b.UpdateSetting(t.Context(), name, same)
			require.NoError(t, err, "%s: a client that sets what holds has what it wants", name)
			assert.Equal(t, want, view.Value, name)
		}
		other := map[string]string{"true": "false", "false": "true"}[want]
		_, err = b.UpdateSetting(t.Context(), name, other)
		wantInvalid(t, err, "value", `value: setting `+name+` with invalid value "`+other+`": it cannot be set: the setting is read-only`)
		b.ExpectWrites()
	}
}
