package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Replica is one open replica: what passed the gate of its generation and session. *nbd.Client and a session by direct call are.
type Replica interface {
	nbd.Backend
	nbd.Controller
	// Size is in bytes.
	Size() int64
	// Done is closed when the replica serves this session no longer, for whatever reason.
	Done() <-chan struct{}
	// Close ends the session. Requests under way end, with an error if need be, within bounded time. It must be idempotent.
	Close() error
}

// asyncWriter is what a Replica may offer so that a write to it costs no goroutine: done is called once, from any goroutine, and
// must not block; p must stay as it is until then.
type asyncWriter interface {
	WriteAsync(p []byte, off int64, fua bool, done func(error))
}

// cutter is what a Replica over the network may offer so that nothing waits for a peer that hangs: every call ends at once, its outcome
// unknown, and Close does not wait. It must not block.
type cutter interface {
	Cut(cause error)
}

// Member names one replica of the volume.
type Member struct {
	Name    string
	UID     string // of the replica; one that shows another is refused. Empty: not checked
	Address string // for Config.Connect; one that has none and is not local counts as missing at once
	Local   bool   // reached by direct call, so read from first
	TLS     bool   // for Config.Connect: the connection is encrypted, and both ends prove the secret, or there is none
}

// Config is all that an Engine needs to know.
type Config struct {
	Name   string // of the engine, for messages
	Volume string
	// Generation and Session identify this start; the API object holds the generation before Start is called.
	Generation int64
	Session    string
	SizeBytes  int64
	// Recorded is the epoch that the API object holds; zero before the first start.
	Recorded membership.Epoch
	// Members are all replicas of the volume; at the first start those that can be opened become the members of the epoch.
	Members []Member
	// Connect opens one replica under Generation and Session. It must return soon after ctx ends. An error that wraps ErrFenced
	// says that the replica has admitted a higher generation.
	Connect func(ctx context.Context, m Member) (Replica, error)
	// Refuses asks a replica that has failed whether it has admitted a higher generation: the error wraps ErrFenced if so. Any other outcome
	// says nothing. It must change nothing there, and return soon after ctx ends. nil: none is asked.
	Refuses func(ctx context.Context, m Member) error
	// Frontend offers the volume as a device; nil for none. It belongs to this engine alone.
	Frontend Frontend
	// HasUsers says that the frontend takes over a device whose users may still wait to have synced what they wrote to an
	// engine before. The start fails with ReasonWritesLost where a part of that may be missing: else their next sync would
	// succeed without it. The caller must end the device then.
	HasUsers bool
	// OnChange is called after each change of the State, from the engine's goroutines; it must not block. May be nil.
	OnChange func()
	Log      *logrus.Entry // nil: nothing is logged
	Clock    clock.Clock   // nil: the real one
	// QuietPeriod is how long a region must be without changes before its mark is cleared; 0 is 5 s. SlowAfter is how long after
	// another's answer a member that has not answered counts as slow; 0 is 8 s, and how often the engine looks, what a look counts
	// for at most and when another member is asked for a read keep their relation to it. Both are for tests and tools that have no
	// patience.
	QuietPeriod, SlowAfter time.Duration
	// KeepEvery is after how many bytes of the volume a copy is flushed, so that it need not be made again; 0 is 256 MiB. It is for tests.
	KeepEvery int64
}

func (c Config) withDefaults() Config {
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.QuietPeriod <= 0 {
		c.QuietPeriod = quietPeriod
	}
	if c.KeepEvery <= 0 {
		c.KeepEvery = copyFlushBytes
	}
	if c.SlowAfter <= 0 {
		c.SlowAfter = membership.SlowAfter
	}
	if c.Log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		c.Log = logrus.NewEntry(l)
	}
	c.Log = c.Log.WithFields(logrus.Fields{"engine": c.Name, "volume": c.Volume, "generation": c.Generation})
	c.Members = slices.Clone(c.Members)
	slices.SortFunc(c.Members, func(a, b Member) int { return compareNames(a.Name, b.Name) })
	return c
}

var (
	// ErrInUse says that the volume's device is open or mounted. Nothing was changed.
	ErrInUse = errors.New("the device is in use")
	// ErrUnclean is wrapped by what Stop returns when the engine has ended, but not all members have confirmed a last flush.
	// The regions concerned stay marked and are made equal at the next start.
	ErrUnclean = errors.New("stopped without a last flush on all members")
	// ErrFenced says that a replica has admitted a higher generation: this engine's time is over.
	ErrFenced = errors.New("a higher generation was admitted")
	// ErrNotProposed refuses a RecordEpoch of another epoch or session than those the engine asked for.
	ErrNotProposed = errors.New("the engine did not propose this")
	// ErrOtherSession refuses what was meant for another start of the engine.
	ErrOtherSession = errors.New("not the engine's session")
	// ErrNotRunning refuses what only a running engine can do.
	ErrNotRunning = errors.New("the engine is not running")
	// ErrBusy refuses an operation while another one is under way.
	ErrBusy = errors.New("the engine does one thing at a time")
	// ErrLeaving refuses a larger size when the epoch lists a replica that has failed for too long.
	ErrLeaving = errors.New("a replica that has failed is a member still")
	// ErrMemberTooSmall refuses a size that a member does not have yet.
	ErrMemberTooSmall = errors.New("a replica is too small")
	// ErrLastMember refuses to expel the last member.
	ErrLastMember = membership.ErrLastMember
)

// Engine runs one volume. It is made by Start and ended by Stop; all methods may be called from any goroutine.
type Engine struct {
	cfg    Config
	log    *logrus.Entry
	mirror *mirror

	ctx     context.Context // ends when the engine has failed or is being stopped: connections are closed then
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	unstill chan struct{} // receives when the members are not what the epoch says
	quit    chan struct{} // closed to end the loops
	looped  chan struct{} // closed when the start and the loops have ended

	asking   sync.Mutex // held while replicas are asked what a joining one lacks; see lacking
	expandMu sync.Mutex // one Expand at a time; taken before mu

	stopMu sync.Mutex // one Stop at a time; taken before mu
	ended  bool       // guarded by stopMu; nothing is left to stop

	mu         sync.Mutex       // also held to change mirror.roster
	state      State            // guarded by mu
	accepted   membership.Epoch // guarded by mu; the last epoch that RecordEpoch was called with
	recorded   chan struct{}    // guarded by mu; closed when the API object holds the proposed epoch
	operation  operation        // guarded by mu; the one under way, if any
	stopping   bool             // guarded by mu; no operation may begin
	frontended bool             // guarded by mu; the frontend was started and not stopped
	// predecessorAsked is when the engine before this one asked last; see Predecessor. Guarded by mu; zero if that is not known.
	predecessorAsked time.Time
}

// Start begins to start an engine and returns at once; progress is in State. The caller must call Stop at the end, also after a
// failure.
func Start(cfg Config) *Engine {
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, log: cfg.Log,
		unstill: make(chan struct{}, 1), quit: make(chan struct{}), looped: make(chan struct{}),
		state: State{Phase: PhaseStarting},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.mirror = newMirror(cfg, e.ctx.Done(), e.memberFailed)
	e.tasks.Go(e.run)
	return e
}

// run starts the engine and serves until quit is closed.
func (e *Engine) run() {
	defer close(e.looped)
	e.tasks.Go(func() { e.mirror.watchdog.run(e.ctx, func(r *wait) { e.tasks.Go(func() { e.mirror.probe(r) }) }) })
	if f := e.start(); f != nil {
		e.fail(*f)
		return
	}
	// The kernel flushes a new device before it is there, and that may need a member expelled: members change before the frontend starts.
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(e.changeMembers)
	if f := e.open(); f != nil {
		e.fail(*f)
		return
	}
	e.clearIntents()
}

// Backend is the volume as frontends and tools use it. Its methods return ESHUTDOWN while the engine does not serve and EIO once
// it has failed. Their contexts do not cut a request short: half a fan-out is worse than a late answer.
func (e *Engine) Backend() nbd.Backend { return e.mirror }

// RecordEpoch tells the engine that the API object now holds the epoch in State.ProposedEpoch. It is idempotent; another session
// or epoch gives ErrNotProposed.
func (e *Engine) RecordEpoch(session string, epoch membership.Epoch) error {
	if err := e.accept(session, epoch); err != nil {
		return err
	}
	e.cfg.OnChange()
	return nil
}

func (e *Engine) accept(session string, epoch membership.Epoch) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case session != e.cfg.Session:
		return fmt.Errorf("record epoch %s for session %q: %w", epoch, session, ErrNotProposed)
	case !e.accepted.IsZero() && e.accepted.Equal(epoch):
		return nil
	case e.state.ProposedEpoch.IsZero() || !e.state.ProposedEpoch.Equal(epoch):
		return fmt.Errorf("record epoch %s while %s is proposed: %w", epoch, e.state.ProposedEpoch, ErrNotProposed)
	}
	e.accepted, e.state.ProposedEpoch = e.state.ProposedEpoch, membership.Epoch{}
	close(e.recorded)
	return nil
}
