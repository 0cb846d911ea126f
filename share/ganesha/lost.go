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

// TakeList takes the list of lost clients that is about the server of an engine, for good: after is the generation of that engine. It is durable on the
// volume that a process has taken the list before the process may use it, and before a server starts. So no process uses a list a second time: a client
// that has come back since may hold locks by then. isFirst: no process has taken the list before.
//
// A server's own engine has a greater generation than the one that its list is about. So a process without a list calls Serves, and refuses by that all
// lists that later processes of the same engine may have.
func TakeList(recovery string, after int64) (isFirst bool, err error) {
	return raiseLost(recovery, uint64(max(0, after))+1)
}

// Serves makes it durable that clients are served by an engine of that generation from now on.
func Serves(recovery string, generation int64) error {
	_, err := raiseLost(recovery, uint64(max(0, generation)))
	return err
}

// raising is held while the number is read and written: a caller may have stopped waiting for a volume that did not answer.
var raising sync.Mutex

// raiseLost makes durable that only lists which are about this generation, or a greater one, may be taken from now on.
func raiseLost(recovery string, generation uint64) (isRaised bool, err error) {
	raising.Lock()
	defer raising.Unlock()
	path := filepath.Join(recovery, LostName)
	last, err := readNumber(path)
	if err != nil {
		return false, fmt.Errorf("reading which lists of lost clients were used: %w", err)
	}
	if last >= generation {
		return false, nil
	}
	if err := errors.Join(writeNumber(path, generation), syncDirectory(recovery)); err != nil {
		return false, fmt.Errorf("recording which lists of lost clients were used: %w", err)
	}
	return true, nil
}

// DropLost removes the records of clients that cannot come back, so that the next server does not wait for them: a client that died with its node
// would delay all others for the whole grace period. The caller must have taken the list of these clients (TakeList).
//
// isLost decides by the name that a client gives itself; a record whose client's name cannot be read stays. What isLost knows may be true for a moment
// only: it is called just before each record is removed. DropLost returns the names of the clients whose records are gone, also with an error.
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
