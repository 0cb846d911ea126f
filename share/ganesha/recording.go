package ganesha

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// unrecorded are the lines by which Ganesha says that it keeps no record of clients, or of one. On a file system without room it makes no record of a
// client, and serves all the same. It makes the directory of records at its start alone; without that, 4.3 serves, and 9.14 ends.
var unrecorded = regexp.MustCompile(`^[^\]]*\[[^\]]*\] fs_\S+ :(?:CLIENT ID|RECOVERY) :[A-Z_]+ :Failed to create (?:v4 recovery dir|client in recovery dir) ?\(.*\)(?:, errno)?: (.*)\n?$`)

// askedBy is how long after its start a share manager has surely been asked what it found of the last server's records. A later finding takes the
// place of that one.
const askedBy = 2 * time.Minute

// Recording is whether the server records its clients on the volume, as its log says.
//
//	the server                                     what is reported                   what follows
//	cannot record a client                         RecoveryDataUnusable, once         clients lose their state when it ends
//	starts again in this pod after such a one      RecoveryDataMissing                they have lost it
type Recording struct {
	since time.Time // this process runs
	tell  func(types.ShareRecovery)
	log   *logrus.Entry

	mu     sync.Mutex
	lacks  bool                // the server could not record a client; guarded by mu
	latest types.ShareRecovery // to be reported; zero: nothing is; guarded by mu
}

// NewRecording reports to tell.
func NewRecording(tell func(types.ShareRecovery), log *logrus.Entry) *Recording {
	return &Recording{since: time.Now(), tell: tell, log: log}
}

// Hear receives each line that the server itself wrote to its log. It never blocks.
func (r *Recording) Hear(line []byte) {
	if !bytes.Contains(line, []byte("Failed to create ")) {
		return
	}
	m := unrecorded.FindSubmatch(line)
	if m == nil {
		return
	}
	r.Lacks(string(m[1]))
}

// Lacks says that the server cannot record its clients, and why.
func (r *Recording) Lacks(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lacks {
		return
	}
	r.lacks = true
	r.latest = NewIncident(types.ReasonRecoveryDataUnusable, "the NFS server cannot record its clients on the volume: "+why)
	r.log.WithField("error", why).Warn("The NFS server cannot record its clients on the volume: they lose their open files and locks when it ends")
}

// TryRecords tells whether a server that starts can make its directory of records, and one record, beneath a recovery directory.
func TryRecords(recovery string) error {
	dir, err := os.MkdirTemp(recovery, "try")
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(filepath.Join(dir, RecordsName), 0o700), os.RemoveAll(dir))
}

// ServerStarts says that the next server of this pod is about to start.
func (r *Recording) ServerStarts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lacks {
		r.lacks = false
		r.latest = NewIncident(types.ReasonRecoveryDataMissing, "the server before this one could not record its clients on the volume")
	}
}

// Report reports the latest finding, once.
func (r *Recording) Report(now time.Time) {
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
