package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAfter(t *testing.T) {
	for _, tc := range []struct {
		n    int
		want time.Duration
	}{
		{-1, time.Second},
		{0, time.Second},
		{1, 2 * time.Second},
		{2, 4 * time.Second},
		{3, 5 * time.Second},
		{math.MaxInt, 5 * time.Second},
	} {
		assert.Equal(t, tc.want, After(time.Second, 5*time.Second, tc.n), "%d", tc.n)
	}
	assert.Equal(t, time.Second, After(time.Minute, time.Second, 0), "the first is more than the most")
	assert.Zero(t, After(0, time.Second, math.MaxInt), "no wait stays none")
}
