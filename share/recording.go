package share

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// unrecorded are the lines by which Ganesha says that it keeps no record of clients, or of one. On a file system without room it makes neither its
// directory of records, which it makes at its start alone, nor that of a client, and serves all the same.
var unrecorded = regexp.MustCompile(`^[^\]]*\[[^\]]*\] fs_\S+ :CLIENT ID :[A-Z_]+ :Failed to create (?:v4 recovery dir|client in recovery dir) ?\(.*\)(?:, errno)?: (.*)\n?$`)

// askedBy is how long after its start a share manager has surely been asked what it found of the last server's records. A later finding takes the
// place of that one.
const askedBy = 2 * time.Minute

// recording is whether the server records its clients on the volume, as its log says.
//
//	the server                                     what is reported                   what follows
//	cannot record a client                         RecoveryDataUnusable, once         clients lose their state when it ends
//	starts again in this pod after such a one      RecoveryDataMissing                they have lost it
type recording struct {
	since time.Time // this process runs
	tell  func(types.ShareRecovery)
	log   *logrus.Entry

	mu     sync.Mutex
	lacks  bool                // the server could not record a client; guarded by mu
	latest types.ShareRecovery // to be reported; zero: nothing is; guarded by mu
}

// hear receives each line that the server itself wrote to its log. It never blocks.
func (r *recording) hear(line []byte) {
	if !bytes.Contains(line, []byte("Failed to create ")) {
		return
	}
	m := unrecorded.FindSubmatch(line)
	if m == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lacks {
		return
	}
	r.lacks = true
	r.latest = newIncident(types.ReasonRecoveryDataUnusable, fmt.Sprintf("the NFS server cannot record its clients on the volume: %s", m[1]))
	r.log.WithField("error", string(m[1])).Warn("The NFS server cannot record its clients on the volume: they lose their open files and locks when it ends")
}

// serverStarts says that the next server of this pod is about to start.
func (r *recording) serverStarts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lacks {
		r.lacks = false
		r.latest = newIncident(types.ReasonRecoveryDataMissing, "the server before this one could not record its clients on the volume")
	}
}

// report reports the latest finding, once.
func (r *recording) report(now time.Time) {
	r.mu.Lock()
	latest := r.latest
	if latest.Incident == "" || now.Sub(r.since) < askedBy {
		r.mu.Unlock()
		return
	}
	r.latest = types.ShareRecovery{}
	r.mu.Unlock()
	r.tell(latest)
}

const (
	// ballastName is a directory in the recovery directory, and ballastCount how many directories are in it.
	ballastName  = "ballast"
	ballastCount = 32
	// ballastRound is how often missing ones are made again.
	ballastRound = time.Minute
	// ballastBytes and ballastInodes are what must be free for the ballast to be kept, and for it not to be given up.
	ballastBytes, ballastInodes = 8 << 20, 8 * ballastCount
)

// ballast are empty directories that keep room for the server's records: a server that starts on a full file system can record no client. They are
// removed just before a server starts, if nothing else is free, and made again while there is room. An earlier release leaves them alone.
type ballast struct {
	recovery string
	log      *logrus.Entry
}

func (b ballast) names() []string {
	var names []string
	for i := range ballastCount {
		names = append(names, filepath.Join(b.recovery, ballastName, fmt.Sprintf("%02d", i)))
	}
	return names
}

// hasRoom tells whether the file system has room to spare. One that counts no inodes has enough of them.
func (b ballast) hasRoom() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(b.recovery, &st); err != nil {
		return false, err
	}
	return st.Bavail*uint64(st.Bsize) >= ballastBytes && (st.Files == 0 || st.Ffree >= ballastInodes), nil
}

// giveUp makes room for the records of the server that starts next, where there is too little.
func (b ballast) giveUp() {
	if enough, err := b.hasRoom(); enough || err != nil {
		return
	}
	given := 0
	for _, name := range b.names() {
		if unix.Rmdir(name) == nil {
			given++
		}
	}
	b.log.WithField("directories", given).Warn("The volume's file system is full: room that was kept for the records of clients is given up")
}

// keep makes the directories that are missing, if there is room.
func (b ballast) keep() {
	if enough, err := b.hasRoom(); !enough || err != nil {
		return
	}
	if err := os.Mkdir(filepath.Join(b.recovery, ballastName), 0o700); err != nil && !os.IsExist(err) {
		return
	}
	for _, name := range b.names() {
		if err := unix.Mkdir(name, 0o700); err != nil && err != unix.EEXIST {
			return // what is there serves; the rest is tried again
		}
	}
}

// run keeps the directories until ctx ends. It waits for the volume.
func (b ballast) run(ctx context.Context) {
	ticker := time.NewTicker(ballastRound)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.keep()
		}
	}
}
