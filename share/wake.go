package share

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// WakeLibrary is where the image has the library of wake/wake.c.
const WakeLibrary = "/usr/local/lib/longhorn/ganesha-wake.so"

// lookEvery is how often a server in its grace period looks whether that may end. A client that was refused asks again after 0.1 s at first.
const lookEvery = 100 * time.Millisecond

// graceOver is in the line by which Ganesha says that its grace period is over.
var graceOver = []byte("NOT IN GRACE")

// waking has one server look again and again, until its grace period is over, whether all clients that it waits for have claimed their state.
// Ganesha itself looks when it starts, and then each half lease: each failover would take 7 s. Ganesha decides as always; it only does so sooner.
//
//	this process ── a byte each lookEvery ──► pipe ──► the library in Ganesha: reaper_wake()
//	     ▲                                                                      │
//	     └──────────────── "NOT IN GRACE" in the log ◄──────────────────────────┘
type waking struct {
	server, own *os.File // the ends of the pipe
	over        chan struct{}
	once        sync.Once
	log         *logrus.Entry
}

// newWaking prepares a server that has not been started. It returns nil where there is no library: then Ganesha looks when it does.
func newWaking(cmd *exec.Cmd, library string, log *logrus.Entry) (*waking, error) {
	if _, err := os.Stat(library); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	server, own, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe to the NFS server: %w", err)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, server)
	const first = 3 // the number of the first of ExtraFiles
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+library, fmt.Sprintf("LONGHORN_WAKE_FD=%d", first+len(cmd.ExtraFiles)-1))
	return &waking{server: server, own: own, over: make(chan struct{}), log: log}, nil
}

// hear receives each line that the server itself wrote to its log. It never blocks. A nil waking hears nothing.
func (w *waking) hear(line []byte) {
	if w != nil && bytes.Contains(line, graceOver) {
		w.once.Do(func() { close(w.over) })
	}
}

// run has the server look until its grace period is over, for limit at most, or until it has ended. It must be called once, after the server
// has been started or could not be.
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
