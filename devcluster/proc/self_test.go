package proc

import (
	"context"

	"golang.org/x/sys/unix"
)

// waitGoneOfSelf waits for this test's own process, which does not exit.
func waitGoneOfSelf(ctx context.Context, r Record) error {
	fd, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return waitGone(ctx, fd, r.PID)
}
