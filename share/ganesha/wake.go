package ganesha

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// WakeLibrary is the place in the image of the library from wake/wake.c.
const WakeLibrary = "/usr/local/lib/longhorn/ganesha-wake.so"

// wakeInterval is how often a server in its grace period checks whether it may end the period. A client that was
// refused first asks again after 0.1 s.
const wakeInterval = 100 * time.Millisecond

// graceEndText is in the line in which Ganesha says that its grace period is over. graceEndFunction is the function
// that logs it.
const (
	graceEndText     = "NOT IN GRACE"
	graceEndFunction = "nfs_lift_grace_locked"
)

// recorded matches the line in which Ganesha says that it has recorded a client.
var recorded = regexp.MustCompile(`^[^\]]*\[[^\]]*\] fs_\S+ :(?:CLIENT ID|RECOVERY) :[A-Z_]+ :Created client name \[(.*)\]`)

// graceWaker makes one server check again and again, until its grace period is over, whether all clients for which it
// waits have claimed their state. Ganesha itself checks when it starts, and then every half lease: each failover would
// take 7 s. Ganesha decides with its own conditions, only sooner.
//
// Ganesha counts: a client that comes, leaves and comes again counts twice, and so hides a client that is not back yet.
// So these checks stop when a client was recorded twice, and only Ganesha's own checks remain.
//
//	this process ── a byte each wakeInterval ──► pipe ──► the library in Ganesha: reaper_wake()
//	     ▲                                                                      │
//	     └──────────────── "NOT IN GRACE" in the log ◄──────────────────────────┘
type graceWaker struct {
	server, own *os.File // the ends of the pipe
	graceEnded  chan struct{}
	once        sync.Once
	// seen are the clients that were recorded. Only the goroutine that reads the log uses it.
	seen map[string]bool
	log  *logrus.Entry
}

// newGraceWaker prepares a server that has not been started. It returns nil if there is no library: then only Ganesha's
// own checks happen.
func newGraceWaker(cmd *exec.Cmd, library string, log *logrus.Entry) (*graceWaker, error) {
	if !isLibrary(library) {
		return nil, nil
	}
	server, own, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe to the NFS server: %w", err)
	}
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+library, fmt.Sprintf("LONGHORN_WAKE_FD=%d", extraFile(cmd, server)))
	return &graceWaker{server: server, own: own, graceEnded: make(chan struct{}), seen: map[string]bool{}, log: log}, nil
}

// handleLine receives each line that the server itself wrote to its log. It never blocks. A nil graceWaker ignores all
// lines.
func (w *graceWaker) handleLine(line []byte) {
	if w == nil || !w.endsChecks(line) {
		return
	}
	w.once.Do(func() { close(w.graceEnded) })
}

// endsChecks reports whether the checks stop with a line. Clients choose their names, so if a line contains a name,
// endsChecks does not search it for any other word.
func (w *graceWaker) endsChecks(line []byte) bool {
	if m := origin.FindSubmatch(line); m != nil && string(m[1]) == graceEndFunction {
		return bytes.Contains(line, []byte(graceEndText))
	}
	m := recorded.FindSubmatch(line)
	if m == nil {
		return false
	}
	name := string(m[1])
	isTwice := w.seen[name]
	w.seen[name] = true
	return isTwice
}

// abandon closes the pipe of a server that could not be started.
func (w *graceWaker) abandon() {
	_ = w.server.Close()
	_ = w.own.Close()
}

// run makes the server check until its grace period is over, for limit at most, or until it has exited. It must be
// called once, after the server has been started.
func (w *graceWaker) run(limit time.Duration, ended <-chan struct{}) {
	// only the server may have this end open, so that its exit is noticed
	_ = w.server.Close()
	defer w.own.Close()
	each := time.NewTicker(wakeInterval)
	defer each.Stop()
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		select {
		case <-w.graceEnded:
			return
		case <-end.C:
			return
		case <-ended:
			return
		case <-each.C:
		}
		if _, err := w.own.Write([]byte{0}); errors.Is(err, syscall.EPIPE) {
			w.log.Warn("The NFS server cannot be made to check at once whether its clients have returned. The clients wait for up to half a lease longer")
			return
		}
	}
}
