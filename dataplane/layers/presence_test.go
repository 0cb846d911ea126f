package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSameBoot(t *testing.T) {
	for _, tc := range []struct {
		name    string
		recents []Recent
		want    bool
	}{
		{"no file has a recent → yes", nil, true},
		{"all of this boot → yes", []Recent{{SameBoot: true}, {SameBoot: true, Active: true}}, true},
		{"the active one of another boot → no", []Recent{{Active: true, Empty: true}}, false},
		{
			"an opening was interrupted before the active one → no",
			[]Recent{{SameBoot: true, Empty: true}, {Active: true, Empty: true}},
			false,
		},
		{
			"an empty remainder of a file that was sealed → yes",
			[]Recent{{Empty: true}, {SameBoot: true, Active: true}},
			true,
		},
		{"entries of another boot → no", []Recent{{}, {SameBoot: true, Active: true}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, SameBoot(tc.recents)) })
	}
}
