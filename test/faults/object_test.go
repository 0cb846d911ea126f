package faults

import (
	"errors"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// errAway is the error of an API server that cannot be reached.
var errAway = errors.New("the API server does not answer")

// object stands for the Engine object: written by compare-and-swap, according to the rules.
type object struct {
	mu    sync.Mutex
	away  bool
	state membership.Object
}

func (o *object) setAway(away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = away
}

func (o *object) read() (membership.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		return membership.Object{}, errAway
	}
	return o.state, nil
}

// peek returns the object even if no controller can read it.
func (o *object) peek() membership.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// raise starts a new generation for a new session.
func (o *object) raise() (membership.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		return membership.Object{}, errAway
	}
	o.state.Generation++
	o.state.Session = fmt.Sprintf("session-%d", o.state.Generation)
	return o.state, nil
}

// record writes an engine's proposal.
func (o *object) record(session string, e membership.Epoch) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		return errAway
	}
	if err := membership.CanRecord(o.state, session, e); err != nil {
		return err
	}
	o.state.Epoch = e
	return nil
}

func epochFromWire(e *proto.Epoch) membership.Epoch {
	if e == nil {
		return membership.Epoch{}
	}
	return membership.NewEpoch(e.GetGeneration(), e.GetCounter(), e.GetMembers())
}

func epochToWire(e membership.Epoch) *proto.Epoch {
	if e.IsZero() {
		return nil
	}
	return &proto.Epoch{Generation: e.Generation, Counter: e.Counter, Members: e.Members}
}
