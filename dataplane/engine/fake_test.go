package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

const (
	testSize   = 8 << 20
	testRegion = 1 << 20
)

// disk is one replica: the state that remains when its sessions end. It follows the rules of a replica: the gate, and
// marks before writes.
type disk struct {
	name string
	size int64
	data *layeredData
	io   *faulty.Backend // faults between the gate and data

	mu         sync.Mutex
	uid        string           // guarded by mu, like all below
	generation int64            //
	session    string           //
	epoch      membership.Epoch //
	region     int64            // bytes
	clean      bool             //
	cacheKept  bool             //
	readsDisk  bool             //
	writesLost bool             //
	rebuilding bool             //
	marks      map[int64]bool   //
	base       membership.Epoch // of a replica that was left out
	away       map[string]membership.Epoch
	cleared    map[int64]bool // marks that were cleared while other replicas were away
	current    *session       //
	asked      []bool         // questions whether the generation is in force, and whether each was limited
	lastAsked  *membership.LastAsked
	controls   map[uint16]int   // number of calls of each operation
	refuse     error            // the error of admit, if set
	controlErr map[uint16]error // the error of an operation, if set
	before     func(op uint16)  // if set, called before each operation
	old        bool             // it is served by a release without points
}

func newDisk(name string) *disk {
	data := newLayeredData(testSize)
	return &disk{
		name: name, uid: "uid-" + name, size: testSize, data: data, io: faulty.Wrap(data, clock.RealClock{}),
		region: testRegion, marks: map[int64]bool{}, controls: map[uint16]int{}, controlErr: map[uint16]error{},
		away: map[string]membership.Epoch{}, cleared: map[int64]bool{}, readsDisk: true,
	}
}

func (d *disk) resize(size int64) {
	d.size, d.data = size, newLayeredData(size)
	d.io = faulty.Wrap(d.data, clock.RealClock{})
}

// admit passes the gate: a higher generation ends the earlier session, including its current requests.
func (d *disk) admit(generation int64, name string, local bool) (*session, error) {
	d.mu.Lock()
	old, refuse := d.current, d.refuse
	switch {
	case refuse != nil:
	case generation < d.generation || generation == d.generation && name != d.session:
		refuse = fmt.Errorf("%w: %d", ErrFenced, d.generation)
	default:
		d.generation, d.session = generation, name
	}
	d.mu.Unlock()
	if refuse != nil {
		return nil, refuse
	}
	if old != nil {
		_ = old.Close()
	}
	s := &session{disk: d, local: local, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current = s
	return s, nil
}

func (d *disk) marked() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.marks))
}

func (d *disk) mark(regions ...int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range regions {
		d.marks[r] = true
	}
}

func (d *disk) count(op uint16) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.controls[op]
}

func (d *disk) fill(t *testing.T, b byte, off, length int64) {
	t.Helper()
	require.NoError(t, d.data.WriteAt(t.Context(), pattern(b, length), off, false))
}

func (d *disk) bytes(t *testing.T, off, length int64) []byte {
	t.Helper()
	p := make([]byte, length)
	require.NoError(t, d.data.ReadAt(t.Context(), p, off))
	return p
}

func pattern(b byte, length int64) []byte { return slices.Repeat([]byte{b}, int(length)) }

// session is one admission to a disk.
type session struct {
	disk   *disk
	local  bool // reached by direct call: nothing ends a request that hangs
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once

	mu     sync.RWMutex   // read-held while a request starts
	closed bool           // guarded by mu
	inside sync.WaitGroup // requests under way
}

func (s *session) Size() int64           { return s.disk.size }
func (s *session) Done() <-chan struct{} { return s.done }

// end admits no further request. Requests that faults hold end with an error, as with a connection; in a local disk
// they stay.
func (s *session) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if !s.local {
		s.cancel()
		s.inside.Wait()
	}
	s.once.Do(func() { close(s.done) })
}

// Close ends the session and waits for the requests under way.
func (s *session) Close() error {
	s.end()
	s.inside.Wait()
	s.cancel()
	return nil
}

func (s *session) do(f func() error) error {
	s.mu.RLock()
	closed := s.closed
	if !closed {
		s.inside.Add(1)
	}
	s.mu.RUnlock()
	if closed {
		return fmt.Errorf("session closed: %w", nbd.ESHUTDOWN)
	}
	defer s.inside.Done()
	return f()
}

func (s *session) change(off, length int64, f func() error) error {
	return s.do(func() error {
		for r := off / s.disk.region; r*s.disk.region < off+length; r++ {
			s.disk.mark(r)
		}
		return f()
	})
}

// ReadAt marks the regions that cannot be read.
func (s *session) ReadAt(_ context.Context, p []byte, off int64) error {
	return s.do(func() error {
		err := s.disk.io.ReadAt(s.ctx, p, off)
		if err != nil {
			s.disk.mark(off / s.disk.region)
		}
		return err
	})
}

func (s *session) WriteAt(_ context.Context, p []byte, off int64, fua bool) error {
	return s.change(off, int64(len(p)), func() error { return s.disk.io.WriteAt(s.ctx, p, off, fua) })
}

func (s *session) Flush(context.Context) error {
	return s.do(func() error { return s.disk.io.Flush(s.ctx) })
}

func (s *session) Trim(_ context.Context, off, length int64, fua bool) error {
	return s.change(off, length, func() error { return s.disk.io.Trim(s.ctx, off, length, fua) })
}

func (s *session) Zero(_ context.Context, off, length int64, flags nbd.ZeroFlags) error {
	return s.change(off, length, func() error { return s.disk.io.Zero(s.ctx, off, length, flags) })
}

func (s *session) Extents(_ context.Context, off, length int64) (e []nbd.Extent, err error) {
	err = s.do(func() error { e, err = s.disk.io.Extents(s.ctx, off, length); return err })
	return e, err
}

func (s *session) Control(_ context.Context, op uint16, payload []byte) (reply []byte, err error) {
	err = s.do(func() error {
		if s.disk.before != nil {
			s.disk.before(op)
		}
		reply, err = s.disk.control(op, payload)
		return err
	})
	return reply, err
}

func (d *disk) control(op uint16, payload []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.controls[op]++
	if err := d.controlErr[op]; err != nil {
		return nil, err
	}
	switch op {
	case membership.OpState:
		return json.Marshal(membership.State{
			UID: d.uid, SizeBytes: d.size, Generation: d.generation, Epoch: d.epoch, RegionBytes: d.region, Clean: d.clean,
			CacheKept: d.cacheKept, Rebuilding: d.rebuilding, Base: d.base, ReadsDisk: d.readsDisk, WritesLost: d.writesLost,
			LastAsked: d.lastAsked,
		})
	case membership.OpInForce:
		var question membership.InForce
		if err := json.Unmarshal(payload, &question); err != nil {
			return nil, err
		}
		d.asked = append(d.asked, question.Limited)
		return nil, nil
	case membership.OpRecordEpoch:
		prior := d.epoch
		d.epoch = membership.Epoch{}
		if err := json.Unmarshal(payload, &d.epoch); err != nil {
			return nil, err
		}
		d.follow(prior)
		d.rebuilding = d.rebuilding && !d.epoch.Has(d.name)
		return nil, nil
	case membership.OpBeginRebuild:
		d.rebuilding = true
		return nil, nil
	case membership.OpIntents:
		return json.Marshal(membership.Regions{Indexes: slices.Sorted(maps.Keys(d.marks))})
	case membership.OpClearIntents:
		var r membership.Regions
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, err
		}
		for _, i := range r.Indexes {
			delete(d.marks, i)
			if len(d.away) > 0 {
				d.cleared[i] = true
			}
		}
		return nil, nil
	case membership.OpLackAll:
		var lacks membership.LackAll
		if err := json.Unmarshal(payload, &lacks); err != nil {
			return nil, err
		}
		d.base = lacks.Epoch
		for i := range (lacks.SizeBytes-1)/d.region + 1 {
			d.marks[i] = true
		}
		return nil, nil
	case membership.OpAway:
		var away membership.Away
		if err := json.Unmarshal(payload, &away); err != nil {
			return nil, err
		}
		if !away.Epoch.Equal(d.epoch) {
			return nil, nbd.EINVAL
		}
		if last, known := d.away[away.Replica]; !known || !last.Equal(away.Epoch) {
			if d.away == nil {
				d.away = map[string]membership.Epoch{}
			}
			d.away[away.Replica] = away.Epoch
		}
		return nil, nil
	case membership.OpChanged:
		var away membership.Away
		if err := json.Unmarshal(payload, &away); err != nil {
			return nil, err
		}
		if last, known := d.away[away.Replica]; !known || !last.Equal(away.Epoch) {
			return nil, nbd.EINVAL
		}
		changed := maps.Clone(d.cleared)
		maps.Copy(changed, d.marks)
		return json.Marshal(membership.Regions{Indexes: slices.Sorted(maps.Keys(changed))})
	}
	if op >= points.OpState && !d.old {
		return d.data.control(op, payload)
	}
	return nil, nbd.ENOTSUP
}

// follow updates the knowledge of the time since an epoch, after another epoch was stored.
func (d *disk) follow(prior membership.Epoch) {
	switch {
	case d.epoch.Has(d.name):
		d.base = d.epoch
	case prior.Has(d.name):
		d.base = prior
	}
	if !d.epoch.Has(d.name) || !prior.Has(d.name) {
		d.away, d.cleared = map[string]membership.Epoch{}, map[int64]bool{}
		return
	}
	for _, name := range prior.Members {
		if !d.epoch.Has(name) {
			d.away[name] = prior
		}
	}
}

// rig is a volume with its disks, over several engines.
type rig struct {
	t        *testing.T
	disks    []*disk
	local    string // name of the disk that is reached by direct call
	recorded membership.Epoch
	clock    *clocktesting.FakeClock
	// wrap, if set, creates a wrapper between the engine and a session.
	wrap     func(d *disk, s *session) Replica
	releases []func() // each ends a wait that the test has caused
	api      api
}

// api simulates the API object and its controllers.
type api struct {
	mu      sync.Mutex
	object  membership.Object            // guarded by mu, like all below
	away    bool                         //
	kicks   map[*Engine]chan struct{}    // one for each started engine
	history []membership.Epoch           // the recorded epochs
	line    layers.Line                  //
	onWrite func(epoch membership.Epoch) // called under mu before the engine learns of a record
}

// cut makes the object unreachable, or reachable again.
func (a *api) cut(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
	for _, kick := range a.kicks {
		select {
		case kick <- struct{}{}:
		default:
		}
	}
}

func (a *api) recordedLine() layers.Line {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.line
}

func (a *api) epoch() membership.Epoch {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.object.Epoch
}

// record stores the epoch that an engine proposes, if the rules allow it, and tells the engine.
func (a *api) record(e *Engine) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := e.State()
	if a.away || s.ProposedEpoch.IsZero() {
		return nil
	}
	if err := membership.CanRecord(a.object, e.cfg.Session, s.ProposedEpoch); err != nil {
		if errors.Is(err, membership.ErrOvertaken) {
			return nil
		}
		return err
	}
	a.object.Epoch = s.ProposedEpoch
	if s.ProposedLine != nil {
		a.line = *s.ProposedLine
	}
	a.history = append(a.history, s.ProposedEpoch)
	if a.onWrite != nil {
		a.onWrite(s.ProposedEpoch)
	}
	line := a.line
	if err := e.RecordEpoch(e.cfg.Session, s.ProposedEpoch, &line); err != nil && e.State().Phase != PhaseError {
		return err
	}
	return nil
}

// serve records the epochs that the engine proposes from now on.
func (r *rig) serve(e *Engine) {
	r.api.mu.Lock()
	kick := r.api.kicks[e]
	r.api.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			assert.NoError(r.t, r.api.record(e))
			select {
			case <-kick:
			case <-ctx.Done():
				return
			}
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

func newRig(t *testing.T, names ...string) *rig {
	r := &rig{t: t, clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), api: api{kicks: map[*Engine]chan struct{}{}}}
	for _, n := range names {
		r.disks = append(r.disks, newDisk(n))
	}
	return r
}

func (r *rig) disk(name string) *disk {
	for _, d := range r.disks {
		if d.name == name {
			return d
		}
	}
	return nil
}

// start starts an engine; the changes of its state are announced on the channel. The epochs that it proposes are not
// recorded.
func (r *rig) start(generation int64, adjust ...func(*Config)) (*Engine, chan struct{}) {
	r.t.Helper()
	changed, kick := make(chan struct{}, 1), make(chan struct{}, 1)
	cfg := Config{
		Name: fmt.Sprintf("e%d", generation), Volume: "v", Generation: generation, Session: fmt.Sprintf("s%d", generation),
		SizeBytes: testSize, Recorded: r.recorded, Line: r.api.recordedLine(), Clock: r.clock,
		OnChange: func() {
			for _, c := range []chan struct{}{changed, kick} {
				select {
				case c <- struct{}{}:
				default:
				}
			}
		},
	}
	for _, d := range r.disks {
		cfg.Members = append(cfg.Members, r.member(d.name))
	}
	cfg.Connect = func(_ context.Context, m Member) (Replica, error) {
		s, err := r.disk(m.Name).admit(cfg.Generation, cfg.Session, m.Local)
		if err != nil {
			return nil, err
		}
		if r.wrap != nil {
			return r.wrap(r.disk(m.Name), s), nil
		}
		return s, nil
	}
	for _, a := range adjust {
		a(&cfg)
	}
	r.api.mu.Lock()
	r.api.object = membership.Object{Generation: generation, Session: cfg.Session, Epoch: r.recorded}
	r.api.mu.Unlock()
	e := Start(cfg)
	r.api.mu.Lock()
	r.api.kicks[e] = kick
	r.api.mu.Unlock()
	r.t.Cleanup(func() {
		for _, release := range r.releases { // the engine waits for what the test holds
			release()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			assert.ErrorIs(r.t, err, ErrUnclean, "stop at the end")
		}
	})
	return e, changed
}

func (r *rig) member(name string) Member {
	return Member{Name: name, UID: "uid-" + name, Address: "at-" + name, Local: name == r.local}
}

// patience is much longer than anything takes that does not hang, also on a busy machine.
const patience = time.Minute

// await returns the first state for which ok holds.
func (r *rig) await(e *Engine, changed <-chan struct{}, what string, ok func(State) bool) State {
	r.t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		s := e.State()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("no %s; the state is %+v", what, s)
		}
	}
}

func proposed(s State) bool { return !s.ProposedEpoch.IsZero() }
func settled(s State) bool  { return s.Phase == PhaseRunning || s.Phase == PhaseError }

// run starts an engine, and simulates the API object for it.
func (r *rig) run(generation int64, adjust ...func(*Config)) (*Engine, chan struct{}) {
	r.t.Helper()
	r.recorded = r.api.latest(r.recorded)
	e, changed := r.start(generation, adjust...)
	r.serve(e)
	s := r.await(e, changed, "running engine", settled)
	require.Equal(r.t, PhaseRunning, s.Phase, "did not start")
	r.recorded = r.api.epoch()
	return e, changed
}

// latest returns the newer of the object's epoch and another epoch.
func (a *api) latest(other membership.Epoch) membership.Epoch {
	if mine := a.epoch(); mine.Compare(other) > 0 {
		return mine
	}
	return other
}

// sameBytes fails the test unless all disks, or the named ones, hold the same bytes.
func (r *rig) sameBytes(names ...string) {
	r.t.Helper()
	var first *disk
	var want []byte
	for _, d := range r.disks {
		if len(names) > 0 && !slices.Contains(names, d.name) {
			continue
		}
		if first == nil {
			first, want = d, d.bytes(r.t, 0, testSize)
			continue
		}
		if got := d.bytes(r.t, 0, testSize); !slices.Equal(want, got) {
			at := 0
			for want[at] == got[at] {
				at++
			}
			r.t.Errorf("%s and %s differ, first at %d", first.name, d.name, at)
		}
	}
}
