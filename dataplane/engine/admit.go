package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// admitTimeout limits the time to open a replica and ask for its state.
const admitTimeout = 10 * time.Second

var (
	// errNoAddress means that the address of a replica is unknown.
	errNoAddress = errors.New("its address is unknown")
	// errMismatch means that another replica than the expected one answered.
	errMismatch = errors.New("the replica does not match the volume")
	// errLate means that a replica was not opened within admitTimeout.
	errLate = fmt.Errorf("it did not answer within %s", admitTimeout)
)

// candidate is a replica of the volume with the result of its opening.
type candidate struct {
	Member
	replica Replica // nil if refused
	state   membership.State
	// answered is the time when it had sent its state.
	answered time.Time
	err      error // why refused
}

type candidates []*candidate

// inTime returns a context that ends after admitTimeout with errLate. The caller must call stop.
func (e *Engine) inTime(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := e.cfg.Clock.NewTimer(admitTimeout)
	go func() {
		select {
		case <-timer.C():
			cancel(errLate)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}

// opening opens one replica, asks for its state and calls then, while ctx lasts. If the replica has not been received
// from answers by then, it is closed as soon as it is open, and never used. This is necessary because a disk of this
// machine may hang for long.
func (e *Engine) opening(ctx context.Context, m Member, answers chan<- *candidate, then func(context.Context, *candidate) error) {
	e.tasks.Go(func() {
		c := &candidate{Member: m}
		if c.err = e.ask(ctx, c); c.err == nil {
			c.err = then(ctx, c)
		}
		if c.err != nil {
			c.close()
		}
		select {
		case answers <- c:
		case <-ctx.Done():
			c.close()
		}
	})
}

func (c *candidate) close() {
	if c.replica != nil {
		_ = c.replica.Close()
		c.replica = nil
	}
}

// admit opens every replica and asks for its state. A replica that has not answered in time is left out.
func (e *Engine) admit() (candidates, *failure) {
	ctx, stop := e.inTime(e.ctx)
	defer stop()
	answers, all := make(chan *candidate), make(candidates, len(e.cfg.Members))
	for i, m := range e.cfg.Members {
		all[i] = &candidate{Member: m, err: errLate}
		e.opening(ctx, m, answers, func(context.Context, *candidate) error { return nil })
	}
	for range all {
		select {
		case c := <-answers:
			all[slices.IndexFunc(all, func(o *candidate) bool { return o.Name == c.Name })] = c
		case <-ctx.Done():
		}
	}
	if err := e.ctx.Err(); err != nil {
		for _, c := range all {
			c.close()
		}
		return nil, &failure{reason: ReasonInterrupted, err: err}
	}
	return all, nil
}

// ask opens one replica and checks that it is the expected one.
func (e *Engine) ask(ctx context.Context, c *candidate) (err error) {
	if c.Address == "" && !c.Local {
		return errNoAddress
	}
	if c.replica, err = e.cfg.Connect(ctx, c.Member); err != nil {
		c.replica = nil
		return fmt.Errorf("open the replica: %w", err)
	}
	if err := ctx.Err(); err != nil { // it opened late and must not receive requests
		return fmt.Errorf("open the replica: %w", err)
	}
	reply, err := c.replica.Control(ctx, membership.OpState, nil)
	if err != nil {
		return fmt.Errorf("read its state: %w", err)
	}
	c.answered = e.cfg.Clock.Now()
	if c.state, err = decodeState(reply); err != nil {
		return fmt.Errorf("decode its state: %w", err)
	}
	s := c.state
	switch {
	case c.UID != "" && s.UID != c.UID:
		return fmt.Errorf("%w: its UID is %s, expected %s", errMismatch, s.UID, c.UID)
	case s.SizeBytes < e.mirror.size.Load() || c.replica.Size() < e.mirror.size.Load():
		return fmt.Errorf("%w: its size is %d bytes, the volume has %d bytes", errMismatch, s.SizeBytes, e.mirror.size.Load())
	case s.Generation > e.cfg.Generation:
		return fmt.Errorf("%w: generation %d", ErrFenced, s.Generation)
	case s.Generation < e.cfg.Generation:
		return fmt.Errorf("%w: it admitted generation %d, but its state has generation %d", errMismatch, e.cfg.Generation, s.Generation)
	}
	if err := membership.CheckRegions(e.mirror.size.Load(), s.RegionBytes); err != nil {
		return fmt.Errorf("%w: %w", errMismatch, err)
	}
	return nil
}

// maxStateBytes limits the size of a replica's state. The engine passes the epoch in it on to the API object, in one
// message with the epochs of the other engines of this node.
const maxStateBytes = 64 << 10

// decodeState reads the reply to membership.OpState.
func decodeState(reply []byte) (s membership.State, err error) {
	if len(reply) > maxStateBytes {
		return s, fmt.Errorf("%w: its state message has %d bytes, more than the maximum of %d", errMismatch, len(reply), maxStateBytes)
	}
	err = json.Unmarshal(reply, &s)
	return s, err
}

func (cs candidates) shown() map[string]membership.Shown {
	shown := map[string]membership.Shown{}
	for _, c := range cs {
		if c.replica != nil {
			shown[c.Name] = membership.Shown{Epoch: c.state.Epoch, Rebuilding: c.state.Rebuilding}
		}
	}
	return shown
}

// only returns the candidates that are members of the epoch, ordered by name.
func (cs candidates) only(epoch membership.Epoch) candidates {
	return slices.DeleteFunc(slices.Clone(cs), func(c *candidate) bool { return !epoch.Has(c.Name) })
}

func (cs candidates) closeOthers(epoch membership.Epoch) {
	for _, c := range cs {
		if c.replica != nil && !epoch.Has(c.Name) {
			_ = c.replica.Close()
		}
	}
}

// refusal says why PlanStart refused, with the known facts about each replica, and closes the opened replicas.
func (cs candidates) refusal(recorded membership.Epoch, err error) *failure {
	f := &failure{reason: ReasonMemberMissing, err: err}
	details := map[string]string{}
	fenced, mismatch := false, false
	for _, c := range cs {
		if c.replica != nil {
			_ = c.replica.Close()
			continue
		}
		details[c.Name] = c.err.Error()
		f.members = append(f.members, MemberState{Name: c.Name, Mode: ModeERR, Error: c.err.Error()})
		fenced = fenced || errors.Is(c.err, ErrFenced)
		mismatch = mismatch || errors.Is(c.err, errMismatch)
	}
	switch {
	case errors.Is(err, membership.ErrRolledBack):
		f.reason, f.shown = ReasonRolledBack, cs.foreign(recorded)
	case errors.Is(err, membership.ErrNotEmpty):
		f.reason, f.shown = ReasonNotEmpty, cs.foreign(recorded)
	case errors.Is(err, membership.ErrNoMembers):
		f.reason = ReasonNoMembers
	case fenced:
		f.reason = ReasonFenced
	case mismatch:
		f.reason = ReasonMemberMismatch
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(details)) {
		text = append(text, name+": "+details[name])
	}
	if len(text) > 0 {
		f.err = fmt.Errorf("%w (%s)", err, strings.Join(text, "; "))
	}
	return f
}

// foreign is the highest epoch that a replica shows and that the recorded epoch does not follow (membership.PlanStart).
func (cs candidates) foreign(recorded membership.Epoch) membership.Epoch {
	var highest membership.Epoch
	for _, c := range cs {
		if c.replica != nil && c.state.Epoch.Foreign(recorded) && c.state.Epoch.Compare(highest) > 0 {
			highest = c.state.Epoch
		}
	}
	return highest
}
