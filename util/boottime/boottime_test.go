package boottime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestNowIsNotBeforeTheMonotonicClock(t *testing.T) {
	var monotonic unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic))
	now := Now()
	assert.GreaterOrEqual(t, now, time.Duration(monotonic.Nano()))
	assert.GreaterOrEqual(t, Now(), now)
}
