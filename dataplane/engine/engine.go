package engine

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Replica is one open replica that has admitted this engine's generation and session. *nbd.Client and a local session
// are Replicas.
type Replica interface {
	nbd.Backend
	nbd.Controller
	// Size is the size in bytes.
	Size() int64
	// Done is closed when the replica no longer serves this session, for any reason.
	Done() <-chan struct{}
	// Close ends the session. Current requests end within limited time, if necessary with an error. It must be
	// idempotent.
	Close() error
}

// asyncWriter is an optional method of a Replica, so that a write to it needs no goroutine. done is called once, from
// any goroutine, and must not block; p must stay unchanged until then.
type asyncWriter interface {
	WriteAsync(p []byte, off int64, fua bool, done func(error))
}

// cutter is an optional method of a Replica over the network, so that nothing waits for a peer that hangs. Cut ends
// every call at once, with an unknown outcome, and afterwards Close does not wait. It must not block.
type cutter interface {
	Cut(cause error)
}

// Member names one replica of the volume.
type Member struct {
	Name    string
	UID     string // of the replica; a replica with another UID is refused. Empty: not checked
	Address string // for Config.Connect; a member with neither an address nor Local counts as missing at once
	Local   bool   // reached by direct call, so preferred for reads
	// TLS is for Config.Connect: the connection is encrypted and both ends prove the secret, or there is no connection.
	TLS bool
}

// Config has everything that an Engine needs to know.
type Config struct {
	Name   string // of the engine, for messages
	Volume string
	// Generation and Session identify this start; the API object holds the generation before Start is called.
	Generation int64
	Session    string
	SizeBytes  int64
	// Recorded is the epoch that the API object holds; zero before the first start.
	Recorded membership.Epoch
	// Line is the line that the API object holds. Groups has the outcome of each group that an intended point names.
	Line   layers.Line
	Groups map[string]layers.Outcome
	// Members are all replicas of the volume. At the first start, the replicas that can be opened become the members of
	// the epoch.
	Members []Member
	// Connect opens one replica under Generation and Session. It must return soon after ctx ends. An error that wraps
	// ErrFenced means that the replica has admitted a higher generation.
	Connect func(ctx context.Context, m Member) (Replica, error)
	// Refuses asks a replica that has failed whether it has admitted a higher generation: if so, the error wraps
	// ErrFenced. Any other outcome proves nothing. It must change nothing there, and return soon after ctx ends. If it
	// is nil, no replica is asked.
	Refuses func(ctx context.Context, m Member) error
	// Frontend offers the volume as a device; nil for none. Only this engine uses it.
	Frontend Frontend
	// HasUsers means that the frontend takes over a device that may still have users. They may rely on writes to an
	// earlier engine that they have not synced yet. If some of these writes may be missing, the start fails with
	// ReasonWritesLost: otherwise the users' next sync would succeed without them. Then the caller must end the device.
	HasUsers bool
	// OnChange is called after each change of the State, from the engine's goroutines; it must not block. May be nil.
	OnChange func()
	Log      *logrus.Entry // nil: nothing is logged
	Clock    clock.Clock   // nil: the real one
	// QuietPeriod is how long a region must be without changes before its mark is cleared; 0 is 5 s. SlowAfter is how
	// long after another member's answer a member without an answer counts as slow; 0 is 8 s. Three other times change
	// in proportion to SlowAfter: the time between two checks, the longest time that a check counts for, and the time
	// until the engine asks another member about a read. Both settings are for tests and for tools that must not wait.
	QuietPeriod, SlowAfter time.Duration
	// KeepEvery is the number of bytes of the volume after which a copy is flushed, so that this part need not be
	// copied again; 0 is 256 MiB. It is for tests.
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
	// ErrUnclean is wrapped by the error of Stop if the engine has ended, but not all members have confirmed a last
	// flush. The regions concerned stay marked and are made equal at the next start.
	ErrUnclean = errors.New("not every replica confirmed the last flush")
	// ErrFenced means that a replica has admitted a higher generation: this engine must not continue.
	ErrFenced = errors.New("this engine is rejected: a replica has recorded a higher generation")
	// ErrNotProposed refuses a RecordEpoch with another epoch or session than the engine proposed.
	ErrNotProposed = errors.New("the engine did not propose this epoch")
	// ErrOtherSession refuses a call for another start of the engine.
	ErrOtherSession = errors.New("the request is for another start of the engine")
	// ErrNotRunning refuses calls that only a running engine can serve.
	ErrNotRunning = errors.New("the engine is not running")
	// ErrBusy refuses an operation while another one is under way.
	ErrBusy = errors.New("the engine is busy with another operation")
	// ErrLeaving refuses a larger size if the epoch has listed a failed replica for too long.
	ErrLeaving = errors.New("a failed replica is still a member")
	// ErrMemberTooSmall refuses a size that a member does not have yet.
	ErrMemberTooSmall = errors.New("a replica is too small")
	// ErrNotSupported refuses a snapshot if a replica is served by a release that does not know points.
	ErrNotSupported = errors.New("a replica is served by a release without snapshots")
	// ErrOldLine refuses a line that is older than the line of the engine.
	ErrOldLine = errors.New("the engine has a newer record of the snapshots")
	// ErrLastMember refuses to expel the last member.
	ErrLastMember = membership.ErrLastMember
)

// Engine runs one volume. Start creates it and Stop ends it. All methods may be called from any goroutine.
type Engine struct {
	cfg    Config
	log    *logrus.Entry
	mirror *mirror

	// ctx ends when the engine has failed or is being stopped; then connections are closed.
	ctx            context.Context
	cancel         context.CancelFunc
	tasks          sync.WaitGroup
	membersChanged chan struct{} // receives when the members differ from the epoch
	quit           chan struct{} // closed to end the loops
	loopsEnded     chan struct{} // closed when the start and the loops have ended

	// lackingMu is held while replicas are asked which data a joining replica lacks; see lacking.
	lackingMu sync.Mutex
	expandMu  sync.Mutex // one Expand at a time; taken before mu

	stopMu sync.Mutex // one Stop at a time; taken before mu
	ended  bool       // guarded by stopMu; nothing remains to be stopped

	mu                sync.Mutex       // also held to change mirror.roster
	state             State            // guarded by mu
	accepted          membership.Epoch // guarded by mu; the last epoch that RecordEpoch accepted
	recorded          chan struct{}    // guarded by mu; closed when the API object holds the proposed epoch
	operation         operation        // guarded by mu; the current operation, if any
	stopping          bool             // guarded by mu; no operation may start
	isFrontendStarted bool             // guarded by mu; the frontend was started and not stopped
	snapshot          *snapshot        // guarded by mu; the attempt under way
	lastSnapshot      *snapshot        // guarded by mu; the last attempt, under way or ended
	knowsPoints       bool             // guarded by mu; the volume has, or had, points: members get its line
	startRevert       layers.Interval  // guarded by mu; the last revert of the line with which the engine starts
	// lineTurn has one place: a line is being sent to the members.
	lineTurn chan struct{}
	// predecessorAskedAt is the time of the last question of the previous engine; see Predecessor. Zero if it is
	// unknown. Guarded by mu.
	predecessorAskedAt time.Time
}

// Backend is the volume for frontends and tools. Its methods return ESHUTDOWN while the engine does not serve and EIO
// after it has failed. Their contexts do not end a request early, because a change that only some members have is worse
// than a late answer.
func (e *Engine) Backend() nbd.Backend { return e.mirror }
