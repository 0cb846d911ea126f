package holder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

// Options say which program a holder runs and where it keeps devices.
type Options struct {
	// Command is the serving process: path and arguments. Version is the version that Status shows for it.
	Command []string
	Version string
	// Devices are the options of the devices.
	Devices device.Options
	// ControlSocket is the path at which Query and Replace reach this holder. If it is empty, there is no such socket.
	ControlSocket string
	// Dir is the directory for the executables of replacements. It is created for the first one, and must allow the
	// execution of programs. Check holds the arguments with which an executable must exit with success before it is
	// used. If Check is empty, executables are not checked.
	Dir   string
	Check []string
	Log   *logrus.Entry

	limits limits
}

// first returns the program that a holder runs first.
func (o Options) first() program { return program{path: o.Command[0], version: o.Version} }

// limits are the times of a holder. Zero fields get the values of production.
type limits struct {
	ready   time.Duration // a replacement must be ready within this time, and must also live for it
	leave   time.Duration // a serving process that was told to leave is killed after this time
	stuck   time.Duration // a process that has been dying for so long loses its devices: it may hang in one
	window  time.Duration // with this many deaths and failed starts in this time, the holder stops:
	deaths  int
	backoff time.Duration // pause before the second of several starts; doubled with each start
}

func (l limits) withDefaults() limits {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&l.ready, 30*time.Second)
	set(&l.leave, 20*time.Second)
	set(&l.stuck, 10*time.Second)
	set(&l.window, time.Minute)
	set(&l.backoff, 200*time.Millisecond)
	if l.deaths == 0 {
		l.deaths = 10
	}
	return l
}

// ExitError describes how the last serving process exited, when the holder exits with it.
type ExitError struct {
	Code   int
	Reason string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("the serving process exited with code %d: %s", e.Code, e.Reason)
}

// holder is the state of Run. The goroutine of Run owns all fields except status.
type holder struct {
	opts        Options
	log         *logrus.Entry
	devices     *device.Local
	successions bool
	resends     bool // the same for FUSE devices: the kernel can resend their requests
	mounts      *mounts

	current  program
	trial    *trial // set while current is on trial
	started  bool   // a serving process was started
	deaths   []time.Time
	replaces chan *trial

	mu     sync.Mutex
	status Status // guarded by mu
}

// program is an executable that can serve.
type program struct {
	path    string
	version string
	sum     string
	own     bool // a copy that the holder made; removed when it is no longer used
}

// trial is a replacement under way. It is requested first, and is then the current program until it has proven that it
// works.
type trial struct {
	next, last program
	done       chan error // gets the outcome, once
}

// Run keeps the serving process and its devices until ctx is done. Then it sends SIGTERM to the serving process and
// aborts the devices that remain. It returns an *ExitError if the serving process exited with a code other than 0, or
// too often. It returns another error if no process could be started; if the first start fails, it returns at once.
func Run(ctx context.Context, opts Options) error {
	if len(opts.Command) == 0 {
		return errors.New("the holder requires the command of a serving process")
	}
	opts.limits = opts.limits.withDefaults()
	if opts.Log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		opts.Log = logrus.NewEntry(l)
	}
	if opts.Devices.Log == nil {
		opts.Devices.Log = opts.Log
	}
	h := &holder{
		opts: opts, log: opts.Log, devices: device.NewLocal(opts.Devices), replaces: make(chan *trial), current: opts.first(),
	}
	var err error
	if h.successions, err = fuse.CanResend(); err != nil {
		h.log.WithError(err).Warn("Cannot find out whether this kernel resends requests; devices are removed when the process that serves them exits")
	}
	h.resends = h.successions
	if makes, reason := h.devices.MakesNBD(); makes {
		h.successions = true
		h.log.Info("Devices are created with NBD")
	} else {
		h.log.WithField("reason", reason).Info("Devices are created with FUSE")
	}
	h.log.WithField("successions", h.successions).Info("Holder is starting")
	defer h.removeLost()()
	if h.mounts, err = keepMounts(); err != nil {
		h.log.WithError(err).Warn("Disks on volumes that are attached to this node cannot be used")
	}
	defer h.mounts.close()
	removeCopies(opts.Dir)
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if opts.ControlSocket != "" {
		l, err := listenControl(opts.ControlSocket)
		if err != nil {
			return err
		}
		serving.Go(func() { h.serveControl(ctx, l) })
	}
	reapOrphans(ctx, &serving)
	return h.run(ctx)
}

// run runs one serving process after the other.
func (h *holder) run(ctx context.Context) error {
	defer h.devices.Close()
	for {
		end, err := h.serve(ctx)
		if err != nil {
			if ctx.Err() != nil || !h.started || !h.mayStartAgain(ctx, err) {
				return err
			}
			continue
		}
		// The death of the process is complete: none of its threads writes any longer, except those that hold a lock
		// until they exit (thread.Aside). Only now may devices change hands.
		h.devices.ServerEnded()
		if !h.resends {
			h.devices.AbortFUSE()
		}
		switch {
		case ctx.Err() != nil:
			return end.error("the holder was told to stop")
		case h.afterTrial(end):
			continue
		case !h.successions:
			return end.error("with this kernel, no other process can take over devices")
		}
		if !h.mayRestart(ctx, end) {
			return end.error("it exited too often")
		}
	}
}

// afterTrial settles a replacement: either the program that was told to leave has left, or the program on trial has
// failed.
func (h *holder) afterTrial(end exit) bool {
	switch t := h.trial; {
	case end.replacement != nil:
		h.trial, h.current = end.replacement, end.replacement.next
		h.log.WithField("version", h.current.version).Info("Serving process exited and is replaced by another version")
		return true
	case t != nil:
		h.endTrial(fmt.Errorf("version %s failed: %s", t.next.version, end))
		return true
	}
	return false
}

// endTrial keeps the program on trial, or goes back to the previous program.
func (h *holder) endTrial(failure error) {
	t := h.trial
	h.trial = nil
	unused := t.last
	if failure != nil {
		h.log.WithError(failure).Error("The replacement failed; the previous version serves again")
		unused, h.current = t.next, t.last
	} else {
		h.log.WithField("version", h.current.version).Info("The replacement is serving")
	}
	unused.remove()
	h.mu.Lock()
	h.status.Replacement = fmt.Sprintf("version %s is serving", t.next.version)
	if failure != nil {
		h.status.Replacement = "failed, and the previous version serves again: " + failure.Error()
	}
	h.mu.Unlock()
	t.done <- failure
}

// mayStartAgain is mayRestart for a process that could not be started. Memory or descriptors may be short for a moment,
// and the devices wait. If the executable is a copy that has disappeared, it does not come back. Then the holder uses
// the executable with which it was itself started.
func (h *holder) mayStartAgain(ctx context.Context, reason error) bool {
	if h.current.own && errors.Is(reason, fs.ErrNotExist) {
		h.log.WithField("version", h.current.version).Error("The executable of the serving process no longer exists; the holder uses its first executable")
		h.current = h.opts.first()
	}
	return h.mayTryAgain(ctx, h.log.WithError(reason), "The start of the serving process failed", 0)
}

// mayRestart waits before the next start of a process that died. It does not wait before the first restart within a
// while. It returns false if the process died too often, or if ctx is done.
func (h *holder) mayRestart(ctx context.Context, end exit) bool {
	return h.mayTryAgain(ctx, h.log.WithField("end", end.String()), "The serving process died", end.after)
}

// mayTryAgain counts the exit of a serving process that ran for the given time. It waits until the next process should
// start, and reports whether another start is allowed.
func (h *holder) mayTryAgain(ctx context.Context, log *logrus.Entry, what string, ran time.Duration) bool {
	now := time.Now()
	h.deaths = append(h.deaths, now)
	for now.Sub(h.deaths[0]) > h.opts.limits.window {
		h.deaths = h.deaths[1:]
	}
	h.mu.Lock()
	h.status.Restarts++
	h.mu.Unlock()
	log = log.WithField("deaths", len(h.deaths))
	if len(h.deaths) >= h.opts.limits.deaths {
		log.Error(what + " too often; its devices are removed")
		return false
	}
	log.Warn(what + "; a successor takes over its devices")
	if len(h.deaths) == 1 || ran >= h.opts.limits.window/time.Duration(h.opts.limits.deaths) {
		return true
	}
	pause := time.NewTimer(backoff.After(h.opts.limits.backoff, 5*time.Second, len(h.deaths)-2))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
	return true
}
