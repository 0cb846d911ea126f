package ganesha

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TakeList takes the list of lost clients that is about the server of an engine, permanently. after is the generation
// of that engine. Before a process may use the list, and before a server starts, it is durable on the volume that a
// process has taken the list. So no process uses a list a second time: a client that has come back since may have locks
// by then. isFirst: no process has taken the list before.
//
// A server's own engine has a greater generation than the engine in its list. So a process without a list calls Serves.
// This refuses all lists that later processes of the same engine may have.
func TakeList(recovery string, after int64) (isFirst bool, err error) {
	return raiseLost(recovery, uint64(max(0, after))+1)
}

// Serves makes it durable that an engine with that generation serves clients from now on.
func Serves(recovery string, generation int64) error {
	_, err := raiseLost(recovery, uint64(max(0, generation)))
	return err
}

// raising is held while the number is read and written: a caller may have stopped waiting for a volume that did not
// answer.
var raising sync.Mutex

// raiseLost makes it durable that from now on only lists about this generation, or a greater one, may be taken.
func raiseLost(recovery string, generation uint64) (isRaised bool, err error) {
	raising.Lock()
	defer raising.Unlock()
	path := filepath.Join(recovery, LostName)
	last, err := readNumber(path)
	if err != nil {
		return false, fmt.Errorf("reading the generation of the last used list of lost clients: %w", err)
	}
	if last >= generation {
		return false, nil
	}
	if err := errors.Join(writeNumber(path, generation), syncDirectory(recovery)); err != nil {
		return false, fmt.Errorf("recording the generation of the last used list of lost clients: %w", err)
	}
	return true, nil
}

// DropLost removes the records of clients that cannot come back, so that the next server does not wait for them. A
// client that died with its node would delay all others for the whole grace period. The caller must have taken the list
// of these clients (TakeList).
//
// isLost decides by the name that a client gives itself. A record stays if the name of its client cannot be read. The
// knowledge of isLost may be true for a moment only, so it is called just before each record is removed. DropLost
// returns the names of the clients with removed records, also together with an error.
func DropLost(recovery string, isLost func(client string) bool) (dropped []string, err error) {
	dir, entries, err := recordsInForce(recovery)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ok := types.NFSClientOfRecord(e.Name())
		if !ok || !e.IsDir() || !isLost(name) {
			continue
		}
		if rmErr := unix.Rmdir(filepath.Join(dir, e.Name())); rmErr != nil {
			err = errors.Join(err, fmt.Errorf("removing the record of the lost client %q: %w", name, rmErr))
			continue
		}
		dropped = append(dropped, name)
	}
	if len(dropped) == 0 {
		return nil, err
	}
	return dropped, errors.Join(err, syncDirectory(dir))
}

// Clients are the names that the clients for which the next server waits give themselves. A client is omitted if its
// name cannot be read.
func Clients(recovery string) (names []string, err error) {
	_, entries, err := recordsInForce(recovery)
	for _, e := range entries {
		if name, ok := types.NFSClientOfRecord(e.Name()); ok {
			names = append(names, name)
		}
	}
	return names, err
}

// recordsInForce is the directory of the records that the next server reads, and its entries. Both are empty if it does
// not exist.
func recordsInForce(recovery string) (dir string, entries []os.DirEntry, err error) {
	records := filepath.Join(recovery, RecordsName)
	target, err := os.Readlink(filepath.Join(records, linkName))
	if errors.Is(err, os.ErrNotExist) || err == nil && !recordsLink.MatchString(target) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("finding the records of clients: %w", err)
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
