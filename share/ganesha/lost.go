package ganesha

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// DropLost removes the records of clients that cannot come back, so that the next server does not wait for them: a client that died with its node
// would delay all others for the whole grace period. It must be called before the first server of a pod, and must not be called again in that pod:
// a client that has come back since may hold locks by then. So the generation of the volume's engine is durable on the volume before the first
// record goes, and for that generation nothing is removed a second time.
//
// isLost decides by the name that a client gives itself; a record whose client's name cannot be read stays. DropLost returns the names of those whose records are gone, also when it returns an error.
func DropLost(recovery string, generation int64, isLost func(client string) bool) (dropped []string, err error) {
	path := filepath.Join(recovery, LostName)
	last, err := readNumber(path)
	if err != nil {
		return nil, fmt.Errorf("reading for which engine records of lost clients were removed last: %w", err)
	}
	if generation <= 0 || last >= uint64(generation) {
		return nil, nil
	}
	dir, entries, err := recordsInForce(recovery)
	if err != nil {
		return nil, err
	}
	lost := map[string]string{} // names of clients, by those of their records
	for _, e := range entries {
		if name, ok := types.NFSClientOfRecord(e.Name()); ok && e.IsDir() && isLost(name) {
			lost[e.Name()] = name
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	if err := writeNumber(path, uint64(generation)); err != nil {
		return nil, fmt.Errorf("recording that records of lost clients are removed: %w", err)
	}
	if err := syncDirectory(recovery); err != nil {
		return nil, fmt.Errorf("recording that records of lost clients are removed: %w", err)
	}
	for record, name := range lost {
		if rmErr := unix.Rmdir(filepath.Join(dir, record)); rmErr != nil {
			err = errors.Join(err, fmt.Errorf("removing the record of the lost client %q: %w", name, rmErr))
			continue
		}
		dropped = append(dropped, name)
	}
	return dropped, errors.Join(err, syncDirectory(dir))
}

// Clients are the names of the clients that the next server waits for, as they call themselves. One whose name cannot be read is left out.
func Clients(recovery string) (names []string, err error) {
	_, entries, err := recordsInForce(recovery)
	for _, e := range entries {
		if name, ok := types.NFSClientOfRecord(e.Name()); ok {
			names = append(names, name)
		}
	}
	return names, err
}

// recordsInForce is the directory of the records that the next server reads, and what is in it; nothing if there is none.
func recordsInForce(recovery string) (dir string, entries []os.DirEntry, err error) {
	records := filepath.Join(recovery, RecordsName)
	target, err := os.Readlink(filepath.Join(records, linkName))
	if errors.Is(err, os.ErrNotExist) || err == nil && !recordsLink.MatchString(target) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("looking for the records of clients: %w", err)
	}
	dir = filepath.Join(records, target)
	entries, err = os.ReadDir(dir)
	if err != nil {
		return "", nil, fmt.Errorf("reading the records of clients: %w", err)
	}
	return dir, entries, nil
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
