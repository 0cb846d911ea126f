package ganesha

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// unrecorded matches the lines in which Ganesha says that it stores no record of clients, or of one client. On a full
// file system it creates no record of a client, and serves nevertheless. It creates the directory of records only at
// its start. Without that directory, 4.3 serves, and 9.14 exits.
var unrecorded = regexp.MustCompile(`^[^\]]*\[[^\]]*\] fs_\S+ :(?:CLIENT ID|RECOVERY) :[A-Z_]+ :Failed to create (?:v4 recovery dir|client in recovery dir) ?\(.*\)(?:, errno)?: (.*)\n?$`)

// firstQuestionLimit is the time after the start of a share manager by which the leader has certainly asked it about
// the last server's records. A later finding replaces that one.
const firstQuestionLimit = 2 * time.Minute

// Recording says whether the server reads and writes the records of clients on the volume, according to its log.
//
//	the server                                     report                             meaning
//	cannot record a client                         RecoveryDataUnusable, once         clients lose state when it exits
//	restarts in this pod after such a server       RecoveryDataMissing                they have lost it
//	has read fewer records than exist              RecoveryDataMissing                some clients have lost it
//
// In a pod's first answer, the leader takes all of these for findings about an earlier pod's records. So only the
// number of records that the first server of the pod has read is reported at once. Everything else waits for
// firstQuestionLimit.
type Recording struct {
	started time.Time // the start of this process
	report  func(types.ShareRecovery)
	log     *logrus.Entry
	// before: a loss that was found before the first server waits until the leader asks for it.
	before bool

	mu           sync.Mutex
	cannotRecord bool // the server could not record a client; guarded by mu
	// records is how many records the server must find; NotKnown also after it has logged how many it found; guarded by
	// mu.
	records  int
	servers  int                 // that have started; guarded by mu
	isUrgent bool                // latest need not wait; guarded by mu
	latest   types.ShareRecovery // to be reported; zero: nothing; guarded by mu
}

// NewRecording creates a Recording that calls report. before is the finding about the last server's records, which
// report already knows; zero: no loss.
func NewRecording(before types.ShareRecovery, report func(types.ShareRecovery), log *logrus.Entry) *Recording {
	return &Recording{started: time.Now(), report: report, log: log, before: before.Incident != "", records: NotKnown}
}

// HandleLine receives each line that the server itself wrote to its log. It never blocks.
func (r *Recording) HandleLine(line []byte) {
	if read, ok := clientsRead(line); ok {
		r.read(read)
		return
	}
	if !bytes.Contains(line, []byte("Failed to create ")) {
		return
	}
	m := unrecorded.FindSubmatch(line)
	if m == nil {
		return
	}
	r.CannotRecord(string(m[1]))
}

// read records how many records the server has read. Only its first line about that counts: clients may unregister
// later.
func (r *Recording) read(clients int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	records := r.records
	r.records = NotKnown
	if clients >= records {
		return
	}
	reason := fmt.Sprintf("the NFS server has read the records of only %d of %d clients", clients, records)
	r.latest, r.isUrgent = NewIncident(types.ReasonRecoveryDataMissing, reason), r.servers == 1 && !r.before
	r.log.WithField(logfields.Reason, reason).Warn("Some clients have lost their open files and locks")
}

// CannotRecord records that the server cannot record its clients, and why.
func (r *Recording) CannotRecord(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cannotRecord {
		return
	}
	r.cannotRecord = true
	r.latest, r.isUrgent = NewIncident(types.ReasonRecoveryDataUnusable, "the NFS server cannot record its clients on the volume: "+reason), false
	r.log.WithField("error", reason).Warn("The NFS server cannot record its clients on the volume. They lose their open files and locks when the server exits")
}

// TryRecords checks whether a server that starts can create its directory of records, and one record, in a recovery
// directory.
func TryRecords(recovery string) error {
	dir, err := os.MkdirTemp(recovery, "try")
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(filepath.Join(dir, RecordsName), 0o700), os.RemoveAll(dir))
}

// ServerStarts records that the next server of this pod is about to start, and how many records it must find (Count).
func (r *Recording) ServerStarts(records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = records
	r.servers++
	if r.cannotRecord {
		r.cannotRecord = false
		r.latest, r.isUrgent = NewIncident(types.ReasonRecoveryDataMissing, "the previous server could not record its clients on the volume"), false
	}
}

// Report reports the latest finding, once.
func (r *Recording) Report(now time.Time) {
	r.mu.Lock()
	latest := r.latest
	if latest.Incident == "" || !r.isUrgent && now.Sub(r.started) < firstQuestionLimit {
		r.mu.Unlock()
		return
	}
	r.latest = types.ShareRecovery{}
	r.mu.Unlock()
	r.report(latest)
}
