package membership

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCanGrow(t *testing.T) {
	const mib, tib = 1 << 20, 1 << 40
	assert.True(t, CanGrow(mib, tib))
	assert.False(t, CanGrow(mib, tib+512), "the regions would be larger")
	assert.True(t, CanGrow(3*tib/2, 2*tib))
	assert.False(t, CanGrow(3*tib/2, 2*tib+512))
	assert.False(t, CanGrow(mib, mib))
	assert.False(t, CanGrow(mib, mib-512))
}
