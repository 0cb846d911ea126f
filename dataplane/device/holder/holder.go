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

// Options say what a holder runs and where it keeps devices.
type Options struct {
	// Command is the serving process: path and arguments. Version is what Status shows of it.
	Command []string
	Version string
	// Devices say where devices are.
	Devices device.Options
	// ControlSocket is where Query and Replace reach this holder; none if empty.
	ControlSocket string
	// Dir is where the executables of replacements are put, and is made for the first; programs must be allowed to run there. Check are the arguments with which one
	// must exit with success before it is used; none are tried if empty.
	Dir   string
	Check []string
	Log   *logrus.Entry

	limits limits
}

// first is the program that a holder begins with.
func (o Options) first() program { return program{path: o.Command[0], version: o.Version} }

// limits are the times of a holder. Zero fields get the values of production.
type limits struct {
	ready   time.Duration // a replacement must be ready within this, and live as long
	leave   time.Duration // a serving process that was asked to leave is killed after this
	stuck   time.Duration // a process that is dying for so long loses its devices, for it may hang in one
	window  time.Duration // so many deaths and failed starts within this and the holder gives up:
	deaths  int
	backoff time.Duration // before the second of several starts; doubled with each
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

// ExitError says how the last serving process ended, when the holder ends with it.
type ExitError struct {
	Code int
	Why  string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("the serving process exited with code %d: %s", e.Code, e.Why)
}

// holder is the state of Run, whose goroutine has all fields but status.
type holder struct {
	opts        Options
	log         *logrus.Entry
	devices     *device.Local
	successions bool
	resends     bool // the same of FUSE devices: the kernel sends their requests again
	mounts      *mounts

	current  program
	trial    *trial // current is on trial
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
	own     bool // the holder's copy, to be removed when it is used no more
}

// trial is a replacement on its way: asked for, then current until it has proven itself.
type trial struct {
	next, last program
	done       chan error // gets the outcome, once
}

// Run keeps the serving process running, and its devices, until ctx ends: then it sends the serving process SIGTERM and aborts what is
// left of the devices. It returns an *ExitError when the serving process ended with another code than 0, or too often, and why no process
// could be started: at once for the first.
func Run(ctx context.Context, opts Options) error {
	if len(opts.Command) == 0 {
		return errors.New("a holder needs the command of a serving process")
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
		h.log.WithError(err).Warn("Whether this kernel sends requests again cannot be told: devices end with the process that serves them")
	}
	h.resends = h.successions
	if makes, why := h.devices.MakesNBD(); makes {
		h.successions = true
		h.log.Info("Devices are made with NBD")
	} else {
		h.log.WithField("reason", why).Info("Devices are made with FUSE")
	}
	h.log.WithField("successions", h.successions).Info("Holder starts")
	defer h.removeLost()()
	if h.mounts, err = keepMounts(); err != nil {
		h.log.WithError(err).Warn("A disk cannot lie on a device that is served here")
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

// run is one serving process after the other.
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
		// Its death is complete: not one of its threads writes any more, but for those that hold a lock until they end (thread.Aside). Only
		// now may devices change hands.
		h.devices.ServerEnded()
		if !h.resends {
			h.devices.AbortFUSE()
		}
		switch {
		case ctx.Err() != nil:
			return end.error("told to end")
		case h.afterTrial(end):
			continue
		case !h.successions:
			return end.error("devices cannot be handed on with this kernel")
		}
		if !h.mayRestart(ctx, end) {
			return end.error("it died too often")
		}
	}
}

// afterTrial settles a replacement: the program that it told to leave has left, or the one on trial has failed.
func (h *holder) afterTrial(end ending) bool {
	switch t := h.trial; {
	case end.replacement != nil:
		h.trial, h.current = end.replacement, end.replacement.next
		h.log.WithField("version", h.current.version).Info("Serving process makes room for another version")
		return true
	case t != nil:
		h.concludeTrial(fmt.Errorf("version %s failed: %s", t.next.version, end))
		return true
	}
	return false
}

// concludeTrial keeps the program on trial, or goes back to the one before.
func (h *holder) concludeTrial(failure error) {
	t := h.trial
	h.trial = nil
	unused := t.last
	if failure != nil {
		h.log.WithError(failure).Error("The replacement is taken back")
		unused, h.current = t.next, t.last
	} else {
		h.log.WithField("version", h.current.version).Info("The replacement serves")
	}
	unused.remove()
	h.mu.Lock()
	h.status.Replacement = fmt.Sprintf("version %s serves", t.next.version)
	if failure != nil {
		h.status.Replacement = "taken back: " + failure.Error()
	}
	h.mu.Unlock()
	t.done <- failure
}

// mayStartAgain is mayRestart for a process that could not even be started: memory or descriptors may be short for a moment, and the devices
// wait. An executable of the holder's own that is gone does not come back: then the one that the holder was started with serves.
func (h *holder) mayStartAgain(ctx context.Context, why error) bool {
	if h.current.own && errors.Is(why, fs.ErrNotExist) {
		h.log.WithField("version", h.current.version).Error("The executable that served is gone; the holder's first one takes its place")
		h.current = h.opts.first()
	}
	return h.isWorthATry(ctx, h.log.WithError(why), "Serving process cannot be started", 0)
}

// mayRestart waits before a process that died is started anew; not at all before the first restart for a while. False when it died too
// often, or the time is over.
func (h *holder) mayRestart(ctx context.Context, end ending) bool {
	return h.isWorthATry(ctx, h.log.WithField("end", end.String()), "Serving process died", end.after)
}

// isWorthATry counts the end of a serving process, after it ran for a time, and waits until the next one is to be started.
func (h *holder) isWorthATry(ctx context.Context, log *logrus.Entry, what string, ran time.Duration) bool {
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
		log.Error(what + " too often; its devices are given up")
		return false
	}
	log.Warn(what + "; a successor takes its devices over")
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
