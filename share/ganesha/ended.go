package ganesha

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Ganesha 4.3 with its records in fs_ng tries to remove the record of a client that has ended, or whose lease is over, and looks for it in the
// root directory: what it puts before the name is empty. So each record would stay until the end of the next grace period, and that would last for the
// whole of its 20 s whenever a client has ended before. The log says which record is meant, and it is removed here:
//
//	Failed to remove client recovery dir (/NAME), errno: No such file or directory (2)      the client has ended
//	Created client name [NAME]                                                             it is back; its record is made next, if it is not there
//
// A client that has state at the server must have its record; one too many costs only time. So a record goes a while after the client has ended,
// unless that is back by then; and is made anew if the log says only afterwards that it is. A Ganesha that removes its records itself never
// logs the first line.
//
// A NAME is ADDRESS-(LENGTH:WHAT THE CLIENT CALLS ITSELF). Those that are longer than a file's name may be are in pieces, and stay.
var (
	clientEnded = regexp.MustCompile(`^[^\]]*\[[^\]]*\] fs_rm_clid_impl :CLIENT ID :EVENT :Failed to remove client recovery dir \(/([^/]+-\(\d+:[^/]*\))\), errno: .*\(2\)\n?$`)
	clientCame  = regexp.MustCompile(`^[^\]]*\[[^\]]*\] fs_create_clid_name :CLIENT ID :DEBUG :Created client name \[([^/]+)\]\n?$`)
)

const (
	// endedSettle is how long after a client's end its record goes, and endedMemory how long after its end its return is listened for.
	endedSettle = 2 * time.Second
	endedMemory = time.Minute
	// endedRound is the time between two looks.
	endedRound = time.Second
	// RecordLife is how long after a client's end its record is gone at the latest, if the volume answers.
	RecordLife = endedSettle + 3*endedRound
)

// Departures are the clients that have ended, as the server's log says.
type Departures struct {
	records string // directory of the records
	log     *logrus.Entry
	// remove takes a client's record away, and returns the directories that it was in.
	remove func(client string) []string
	// returned has a value when the record of a client that is back is to be made again.
	returned chan struct{}
	looked   time.Time // last; of the goroutine of Run

	mu sync.Mutex
	// clients are guarded by mu. Their names are those of their records.
	clients map[string]*departure
}

// departure is the end of one client.
type departure struct {
	at   time.Time
	gone bool     // its record was removed, or is being removed
	from []string // directories that its record was removed from
	back bool     // the client has come after gone was set
	told bool     // that its record cannot be made again
}

// NewDepartures removes records beneath a recovery directory.
func NewDepartures(recovery string, log *logrus.Entry) *Departures {
	d := &Departures{records: filepath.Join(recovery, RecordsName), log: log, returned: make(chan struct{}, 1), clients: map[string]*departure{}}
	d.remove = d.removeRecord
	return d
}

// Hear is told each line of the server's own. It waits for nothing.
func (d *Departures) Hear(line []byte) {
	if !bytes.Contains(line, []byte("_clid_")) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := clientEnded.FindSubmatch(line); m != nil && len(d.clients) < maxRecords {
		d.clients[string(m[1])] = &departure{at: time.Now()}
	}
	if m := clientCame.FindSubmatch(line); m != nil {
		switch one := d.clients[string(m[1])]; {
		case one == nil:
		case one.gone:
			one.back = true
			select {
			case d.returned <- struct{}{}:
			default:
			}
		default:
			delete(d.clients, string(m[1]))
		}
	}
}

// ServerStarts forgets whose record was still to go: the server that starts will read it, and drops it at the end of its grace period.
func (d *Departures) ServerStarts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.clients {
		if !one.gone {
			delete(d.clients, name)
		}
	}
}

// Run removes the records of clients that have ended, until ctx ends. It waits for the volume.
func (d *Departures) Run(ctx context.Context) {
	ticker := time.NewTicker(endedRound)
	defer ticker.Stop()
	defer d.makeAgain()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.returned:
			d.makeAgain()
		case <-ticker.C:
			d.look()
		}
	}
}

// look removes the records whose time has come, one by one: whoever comes back before its turn keeps its record.
func (d *Departures) look() {
	now := time.Now()
	isLate := !d.looked.IsZero() && now.Sub(d.looked) > 2*endedRound
	d.looked = now
	if isLate {
		d.settleAnew(now)
	}
	for name, one := d.takeDue(now); one != nil; name, one = d.takeDue(now) {
		d.removed(name, one, d.remove(name))
		d.makeAgain()
	}
	d.looked = time.Now()
}

// settleAnew gives all records their time again: this process stood still, and what the server says meanwhile is not read yet.
func (d *Departures) settleAnew(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.clients {
		if !one.gone {
			one.at = now
		}
	}
}

// takeDue is a client whose record shall go now; nil: there is none. What is long over is forgotten.
func (d *Departures) takeDue(now time.Time) (string, *departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.clients {
		switch since := now.Sub(one.at); {
		case !one.gone && since >= endedSettle:
			one.gone = true
			return name, one
		case one.gone && !one.back && since > endedMemory:
			delete(d.clients, name)
		}
	}
	return "", nil
}

// removed is told that a client's record is gone.
func (d *Departures) removed(name string, one *departure, from []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.from = from
	if d.clients[name] != one { // it came, and perhaps ended again, meanwhile
		one.back = true
		d.clients[name] = one
	}
}

// makeAgain makes the records of those that came back after theirs had gone. What fails is tried again.
func (d *Departures) makeAgain() {
	d.mu.Lock()
	back := map[string]*departure{}
	for name, one := range d.clients {
		if one.back {
			back[name] = one
		}
	}
	d.mu.Unlock()
	for name, one := range back {
		err := d.makeRecord(name, one.from)
		if err != nil && !one.told {
			one.told = true
			d.log.WithError(err).WithField("client", name).Error("A client that is back has no record: it loses its locks if the share moves now")
		}
		if err == nil {
			d.forget(name, one)
		}
	}
}

// forget is told that a client has its record again.
func (d *Departures) forget(name string, one *departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients[name] == one {
		delete(d.clients, name)
	}
}

// removeRecord takes a record out of each directory of records: in a grace period there are two. One that is not empty stays: it is a piece of
// another name.
func (d *Departures) removeRecord(name string) (from []string) {
	entries, err := os.ReadDir(d.records)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !e.IsDir() || !recordsLink.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(d.records, e.Name())
		switch err := unix.Rmdir(filepath.Join(dir, name)); {
		case err == nil:
			from = append(from, dir)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY):
			d.log.WithError(err).WithField("client", name).Warn("The record of a client that has ended stays: the next server waits for it")
		}
	}
	return from
}

// makeRecord makes a record in directories, of those that are still there.
func (d *Departures) makeRecord(name string, in []string) error {
	var errs []error
	for _, dir := range in {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
