// Package boottime reads the kernel's clock that also runs while the machine sleeps.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started (CLOCK_BOOTTIME). It advances while this process is stopped and while
// the machine sleeps, and no correction of the wall clock changes it.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("BUG: the kernel has no boot time: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
