package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// layersState is the answer of a replica about its layers.
type layersState struct {
	points.State
	// known is false if the replica is served by a release that does not know points. Then it has one layer.
	known bool
}

// isLayered reports whether the replica has, or had, points.
func (s layersState) isLayered() bool { return s.Version > 1 }

// maxLayersBytes limits the size of a message about layers. A chain of layers.AllFiles files needs a tenth of it.
const maxLayersBytes = 512 << 10

// askLayers asks a replica for its layers.
func askLayers(ctx context.Context, r nbd.Controller) (layersState, error) {
	reply, err := r.Control(ctx, points.OpState, nil)
	if errors.Is(err, nbd.ENOTSUP) {
		return layersState{State: points.State{Version: 1, Chain: layers.NewChain()}}, nil
	}
	if err != nil {
		return layersState{}, err
	}
	s := layersState{known: true}
	s.State, err = decodeLayers[points.State](reply)
	if err != nil {
		return s, err
	}
	return s, s.check()
}

// check refuses layers that no replica can have, and fills in the layers of format 1.
func (s *layersState) check() error {
	if !s.isLayered() {
		s.Chain = layers.NewChain()
		return nil
	}
	if err := s.Chain.Validate(); err != nil {
		return fmt.Errorf("%w: its list of layers is not valid: %w", errMismatch, err)
	}
	return nil
}

// decodeLayers reads a reply about layers.
func decodeLayers[T any](reply []byte) (T, error) { return decodeMessage[T](reply, maxLayersBytes) }

// decodeMessage reads a reply of at most limit bytes.
func decodeMessage[T any](reply []byte, limit int) (v T, err error) {
	if len(reply) > limit {
		return v, fmt.Errorf("%w: its message about layers has %d bytes, more than the maximum of %d", errMismatch, len(reply), limit)
	}
	if err := json.Unmarshal(reply, &v); err != nil {
		return v, fmt.Errorf("%w: its message about layers: %w", errMismatch, err)
	}
	return v, nil
}

// tell sends a message of package points that has no reply.
func tell(ctx context.Context, r nbd.Controller, op uint16, message any) error {
	_, err := r.Control(ctx, op, encoded(message))
	return err
}

func encoded(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic("BUG: a message about layers cannot be encoded: " + err.Error())
	}
	return b
}

// errNoAnswer means that a replica has not answered a request about points in time. Its outcome is unknown.
var errNoAnswer = errors.New("it has not answered in time")

// onEach runs do for each member concurrently, and returns the results by member. It returns when all are done or ctx
// ends. A request that is not answered then is left behind: its result is errNoAnswer. No member is expelled.
func (e *Engine) onEach(ctx context.Context, members []*member, do func(ctx context.Context, m *member) error) []error {
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(members)) // room for the results that come too late
	errs := make([]error, len(members))
	for i, m := range members {
		errs[i] = errNoAnswer
		e.tasks.Go(func() { results <- result{i, do(ctx, m)} })
	}
	for range members {
		select {
		case r := <-results:
			if errs[r.i] = r.err; isFenced(r.err) {
				e.memberFailed(members[r.i], r.err)
			}
		case <-ctx.Done():
			return errs
		}
	}
	return errs
}

// joinNamed joins the errors of members, with their names.
func joinNamed(members []*member, errs []error) error {
	var named []error
	for i, err := range errs {
		if err != nil {
			named = append(named, fmt.Errorf("replica %s: %w", members[i].name, err))
		}
	}
	return errors.Join(named...)
}

// within returns a context that ends after d, by the engine's clock, with cause. The caller must call stop.
func (e *Engine) within(parent context.Context, d time.Duration, cause error) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := e.cfg.Clock.NewTimer(d)
	go func() {
		select {
		case <-timer.C():
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}
