package ganesha

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// epochDigits is the length of the number in EpochName. It never changes, so that a full file system accepts the next
// number, too.
const epochDigits = 10

// Epochs numbers the servers of a volume. Ganesha puts its epoch, 32 bits, into each client ID and state ID that it
// issues, and treats an ID with its own epoch as its own.
//
// By default the epoch is the time of the start in seconds. Then two servers that start within a second, or on nodes
// with different clocks, could have the same epoch. The second would accept IDs of the first. So each epoch is greater
// than the last one, which is on the volume before the server starts.
type Epochs struct {
	// Recovery is the recovery directory.
	Recovery string

	last uint32 // that Next returned
}

// Next returns the epoch of the next server: the time in seconds since 1970, or more if the last epoch was not less. If
// the volume does not accept the epoch, Next returns an error as well. The epoch is greater than all known epochs
// nevertheless. Next must not be called twice at the same time.
func (e *Epochs) Next(now time.Time) (uint32, error) {
	path := filepath.Join(e.Recovery, EpochName)
	stored, err := readNumber(path)
	next := uint32(now.Unix())
	if last := max(e.last, uint32(min(stored, math.MaxUint32))); last >= next && last < math.MaxUint32 {
		next = last + 1
	}
	e.last = next
	return next, errors.Join(err, writeNumber(path, uint64(next)))
}

// readNumber returns the number in a file; 0 if the file does not exist.
func readNumber(path string) (uint64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, nil // a loss of power tore the first write of it, or another user wrote it
	}
	return n, nil
}

// writeNumber makes a number durable in a file. All numbers have the same length, and lie in one sector, so they
// replace each other in place.
func writeNumber(path string, n uint64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	length, err := fmt.Fprintf(f, "%0*d\n", epochDigits, n)
	if err == nil {
		err = f.Truncate(int64(length)) // another user may have left more
	}
	return errors.Join(err, f.Sync(), f.Close())
}
