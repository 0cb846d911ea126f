package membership

import (
	"math"
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

func TestCheckRegions(t *testing.T) {
	const mib, tib = 1 << 20, 1 << 40
	for name, c := range map[string]struct {
		size, region int64
		good         bool
	}{
		"as a replica is created":         {16 * tib, RegionBytes(16 * tib), true},
		"the largest volume":              {math.MaxInt64 - 511, RegionBytes(math.MaxInt64 - 511), true},
		"as many as there may be":         {tib, 4 * mib, true},
		"one too many":                    {tib + 512, 4 * mib, false},
		"one byte in a large volume":      {16 * tib, 1, false},
		"no bytes":                        {tib, 0, false},
		"less than none":                  {tib, -4 * mib, false},
		"the least that a number holds":   {tib, math.MinInt64, false},
		"no power of two":                 {tib, 5 * mib, false},
		"longer than the volume has ever": {mib, 1 << 62, true},
	} {
		assert.Equal(t, c.good, CheckRegions(c.size, c.region) == nil, name)
	}
}
