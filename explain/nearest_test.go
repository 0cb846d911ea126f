package explain

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "node", 4},
		{"node", "", 4},
		{"node", "node", 0},
		{"nod", "node", 1},
		{"nodes", "node", 1},
		{"mode", "node", 1},
		{"ndoe", "node", 1},
		{"onde", "node", 1},
		{"stauts", "status", 1},
		{"sttsau", "status", 4},
		{"volume", "claim", 5},
	} {
		assert.Equal(t, tc.want, distance(tc.a, tc.b), "%q to %q", tc.a, tc.b)
		assert.Equal(t, tc.want, distance(tc.b, tc.a), "%q to %q", tc.b, tc.a)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"volume", "node", "disk", "claim", "pv", "setting"}
	for typed, want := range map[string]string{
		"volum": "volume", "volmue": "volume", "ndoe": "node", "disc": "disk", "calim": "claim", "settings": "setting",
		"pod": "", "storageclass": "", "": "", "p": "",
	} {
		assert.Equal(t, want, Nearest(typed, words), typed)
	}
}
