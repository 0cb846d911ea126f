package share

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
// A record must not go that its client has again. So it goes a while after the client has ended, unless that is back by then; and is made anew if
// the log says only afterwards that it is. A Ganesha that removes its records itself says the former of none.
var (
	clientEnded = regexp.MustCompile(`^\S+ \S+ : epoch [0-9a-f]+ : \S+ : nfs-ganesha-\d+\[[^\]]*\] fs_rm_clid_impl :CLIENT ID :EVENT :Failed to remove client recovery dir \(/([^/]+)\), errno: .*\(2\)\n?$`)
	clientCame  = regexp.MustCompile(`^\S+ \S+ : epoch [0-9a-f]+ : \S+ : nfs-ganesha-\d+\[[^\]]*\] fs_create_clid_name :CLIENT ID :DEBUG :Created client name \[([^/]+)\]\n?$`)
)

const (
	// endedSettle is how long after a client's end its record goes, and endedMemory how long after that its return is listened for.
	endedSettle = 2 * time.Second
	endedMemory = time.Minute
	// endedRound is the time between two looks.
	endedRound = time.Second
)

// departures are the clients that have ended, as the server's log says.
type departures struct {
	records string // directory of the records
	log     *logrus.Entry
	now     func() time.Time

	mu sync.Mutex
	// clients are guarded by mu. Their names are those of their records.
	clients map[string]*departure
}

// departure is the end of one client.
type departure struct {
	at   time.Time
	gone bool // its record was removed, or is being removed
	from []string
	back bool // the client has come after that
}

func newDepartures(recovery string, log *logrus.Entry) *departures {
	return &departures{records: filepath.Join(recovery, recordsName), log: log, now: time.Now, clients: map[string]*departure{}}
}

// hear is told each line of the server's log. It waits for nothing.
func (d *departures) hear(line []byte) {
	if !bytes.Contains(line, []byte("_clid_")) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := clientEnded.FindSubmatch(line); m != nil && len(d.clients) < maxRecords {
		d.clients[string(m[1])] = &departure{at: d.now()}
	}
	if m := clientCame.FindSubmatch(line); m != nil {
		switch one := d.clients[string(m[1])]; {
		case one == nil:
		case one.gone:
			one.back = true
		default:
			delete(d.clients, string(m[1]))
		}
	}
}

// anew forgets whose record was still to go: a server that starts has read it, and drops it at the end of its grace period.
func (d *departures) anew() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.clients {
		if !one.gone {
			delete(d.clients, name)
		}
	}
}

// run removes the records of clients that have ended, until ctx ends. It waits for the volume.
func (d *departures) run(ctx context.Context) {
	ticker := time.NewTicker(endedRound)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.look()
		}
	}
}

// look removes the records whose time has come, and makes those again whose clients are back.
func (d *departures) look() {
	for name, one := range d.due() {
		from := d.remove(name)
		d.mu.Lock()
		one.from = from
		d.mu.Unlock()
	}
	for name, from := range d.returned() {
		d.log.WithField("client", name).Info("A client is back whose record was just removed: it is made again")
		d.makeAgain(name, from)
	}
}

// due are the clients whose records shall go now. What is long over is forgotten.
func (d *departures) due() map[string]*departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := map[string]*departure{}
	for name, one := range d.clients {
		switch since := d.now().Sub(one.at); {
		case !one.gone && since >= endedSettle:
			one.gone = true
			due[name] = one
		case one.gone && !one.back && since > endedMemory:
			delete(d.clients, name)
		}
	}
	return due
}

// returned are the clients that came back after their records were removed, with the directories that these were in.
func (d *departures) returned() map[string][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	back := map[string][]string{}
	for name, one := range d.clients {
		if one.back {
			back[name] = one.from
			delete(d.clients, name)
		}
	}
	return back
}

// remove takes a record out of each directory of records: in a grace period there are two. What is in the record stays, and so it does.
func (d *departures) remove(name string) (from []string) {
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
		case !errors.Is(err, unix.ENOENT):
			d.log.WithError(err).WithField("client", name).Warn("The record of a client that has ended stays: the next server waits for it")
		}
	}
	return from
}

func (d *departures) makeAgain(name string, in []string) {
	for _, dir := range in {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			d.log.WithError(err).WithField("client", name).Error("A client that is back has no record: it loses its locks when the share moves")
		}
	}
}
