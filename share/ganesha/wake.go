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

// WakeLibrary is where the image has the library of wake/wake.c.
const WakeLibrary = "/usr/local/lib/longhorn/ganesha-wake.so"

// lookEvery is how often a server in its grace period looks whether that may end. A client that was refused asks again after 0.1 s at first.
const lookEvery = 100 * time.Millisecond

// graceOver is in the line by which Ganesha says that its grace period is over, and endsGrace the function that says it.
const (
	graceOver = "NOT IN GRACE"
	endsGrace = "nfs_lift_grace_locked"
)

// recorded is the line by which Ganesha says that it has recorded a client.
var recorded = regexp.MustCompile(`^[^\]]*\[[^\]]*\] fs_\S+ :(?:CLIENT ID|RECOVERY) :[A-Z_]+ :Created client name \[(.*)\]`)

// waking has one server look again and again, until its grace period is over, whether all clients that it waits for have claimed their state.
// Ganesha itself looks when it starts, and then each half lease: each failover would take 7 s. Ganesha decides as always; it only does so sooner.
//
// Ganesha counts: a client that comes, ends and comes again counts twice, for one that is not back yet. So the looks end when a client was
// recorded twice, and Ganesha looks when it does.
//
//	this process ── a byte each lookEvery ──► pipe ──► the library in Ganesha: reaper_wake()
//	     ▲                                                                      │
//	     └──────────────── "NOT IN GRACE" in the log ◄──────────────────────────┘
type waking struct {
	server, own *os.File // the ends of the pipe
	over        chan struct{}
	once        sync.Once
	seen        map[string]bool // clients that were recorded; of the goroutine that reads the log
	log         *logrus.Entry
}

// newWaking prepares a server that has not been started. It returns nil where there is no library: then Ganesha looks when it does.
func newWaking(cmd *exec.Cmd, library string, log *logrus.Entry) (*waking, error) {
	if info, err := os.Stat(library); err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	server, own, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe to the NFS server: %w", err)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, server)
	const first = 3 // the number of the first of ExtraFiles
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+library, fmt.Sprintf("LONGHORN_WAKE_FD=%d", first+len(cmd.ExtraFiles)-1))
	return &waking{server: server, own: own, over: make(chan struct{}), seen: map[string]bool{}, log: log}, nil
}

// hear receives each line that the server itself wrote to its log. It never blocks. A nil waking hears nothing.
func (w *waking) hear(line []byte) {
	if w == nil || !w.ends(line) {
		return
	}
	w.once.Do(func() { close(w.over) })
}

// ends tells whether the looks end with a line. Clients choose their names, so a line that has one is not looked at for any other word.
func (w *waking) ends(line []byte) bool {
	if m := origin.FindSubmatch(line); m != nil && string(m[1]) == endsGrace {
		return bytes.Contains(line, []byte(graceOver))
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
func (w *waking) abandon() {
	_ = w.server.Close()
	_ = w.own.Close()
}

// run has the server look until its grace period is over, for limit at most, or until it has ended. It must be called once, after the server
// has been started.
func (w *waking) run(limit time.Duration, ended <-chan struct{}) {
	_ = w.server.Close() // it is the server's alone, so that its end is seen
	defer w.own.Close()
	each := time.NewTicker(lookEvery)
	defer each.Stop()
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		select {
		case <-w.over:
			return
		case <-end.C:
			return
		case <-ended:
			return
		case <-each.C:
		}
		if _, err := w.own.Write([]byte{0}); errors.Is(err, syscall.EPIPE) {
			w.log.Warn("This NFS server cannot be told to look whether its clients are back: they wait for up to half a lease longer")
			return
		}
	}
}
