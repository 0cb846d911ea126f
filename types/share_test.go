package types

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseNFSSquash(t *testing.T) {
	for text, want := range map[string]NFSSquash{"": "none", "none": "none", "root": "root", " all ": "all"} {
		got, err := ParseNFSSquash(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"Root", "root_squash", "true", "none,all"} {
		_, err := ParseNFSSquash(text)
		require.EqualError(t, err, `nfsSquash: "`+text+`" must be none, root or all`)
	}
}
