package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

var (
	// errNoPoints means that a replica cannot take part, because its process does not know points.
	errNoPoints = errors.New("it is served by a release without snapshots, and the volume has snapshots; upgrade its node")
	// errShort means that the volume was reverted to a point that the replica does not have.
	errShort = errors.New("it lacks the snapshot to which the volume was reverted; it must be rebuilt")
)

// hasPoints reports whether a line needs members that know points. An intended point does not: the start removes it.
func hasPoints(l layers.Line) bool {
	return len(l.Reverted) > 0 || slices.ContainsFunc(l.Points, func(m layers.Mark) bool { return m.State != layers.Intended })
}

func equalLines(a, b layers.Line) bool { return bytes.Equal(encoded(a), encoded(b)) }

// planLine decides the line with which the engine starts, and the members. A member that cannot follow the line leaves
// the epoch before it is proposed: it is as if it were not there, and it must be rebuilt. Each of the other members has
// every acknowledged write.
func (e *Engine) planLine(epoch membership.Epoch, opened candidates) (membership.Epoch, layers.Start, *failure) {
	before := hasPoints(e.cfg.Line) || opened.only(epoch).haveSealed()
	for {
		epoch = opened.leaveOut(e, epoch, func(c *candidate) error { return c.cannotFollow(e.cfg.Line, before) })
		members := opened.only(epoch)
		if len(members) == 0 {
			return epoch, layers.Start{}, opened.refusal(e.cfg.Recorded, membership.ErrMemberMissing)
		}
		s, err := layers.PlanStart(e.cfg.Line, members.chains(), e.cfg.Groups)
		if err != nil {
			opened.closeOthers(membership.Epoch{})
			return epoch, s, &failure{reason: ReasonSnapshotMismatch, err: err}
		}
		after := hasPoints(s.Line)
		next := opened.leaveOut(e, epoch, func(c *candidate) error { return c.cannotFollow(s.Line, after) })
		if next.Equal(epoch) {
			return epoch, s, nil
		}
		epoch = next
	}
}

// cannotFollow returns the reason why a replica cannot follow a line; nil if it can.
func (c *candidate) cannotFollow(l layers.Line, hasPoints bool) error {
	switch {
	case hasPoints && !c.layers.known:
		return errNoPoints
	case l.Follow(c.layers.Chain).Short:
		return errShort
	}
	return nil
}

// leaveOut returns the epoch without the members for which why returns an error. These are closed.
func (cs candidates) leaveOut(e *Engine, epoch membership.Epoch, why func(*candidate) error) membership.Epoch {
	var rest []string
	for _, c := range cs.only(epoch) {
		err := why(c)
		if err == nil {
			rest = append(rest, c.Name)
			continue
		}
		r := c.replica
		c.replica, c.err = nil, err
		e.tasks.Go(func() { _ = r.Close() }) // a disk of this machine may hang
	}
	return membership.NewEpoch(epoch.Generation, epoch.Counter, rest)
}

// haveSealed reports whether a replica shows a point that it has sealed. The API object may have forgotten the point.
func (cs candidates) haveSealed() bool {
	return slices.ContainsFunc(cs, func(c *candidate) bool {
		return slices.ContainsFunc(c.layers.Chain.Layers, func(l layers.Layer) bool { return l.Top.Flushed })
	})
}

func (cs candidates) chains() (chains []layers.Chain) {
	for _, c := range cs {
		chains = append(chains, c.layers.Chain)
	}
	return chains
}

// proposal shows the findings of the start, and returns the line that the API object must record; nil if it has it.
func (e *Engine) proposal(s layers.Start) *layers.Line {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state.Adopted, e.state.Lost, e.startRevert = s.Adopted, s.Lost, lastRevert(s.Line)
	if equalLines(s.Line, e.cfg.Line) {
		return nil
	}
	e.log.WithFields(logrus.Fields{"adopted": len(s.Adopted), "lost": len(s.Lost)}).Info("The start corrects the record of the snapshots")
	line := s.Line
	return &line
}

// followLine makes the members with layers follow the line, after the API object has recorded it. It is safe to repeat.
// A replica without layers has nothing to do, and is not asked. A member that fails is expelled before marked regions
// are compared.
func (e *Engine) followLine(line layers.Line, opened candidates) *failure {
	layered := map[string]bool{}
	for _, c := range opened {
		layered[c.Name] = c.layers.isLayered()
	}
	e.mu.Lock()
	e.state.Line = line
	e.knowsPoints = hasPoints(line) || slices.ContainsFunc(opened, func(c *candidate) bool { return c.layers.isLayered() })
	none := !e.knowsPoints
	e.mu.Unlock()
	if none {
		return nil
	}
	request := encoded(points.Follow{Line: line})
	for {
		if !e.updateEpoch(e.quit) {
			return interrupted(e.ctx)
		}
		ro := e.mirror.roster.Load()
		err := e.mirror.onServing(ro, func(b *member) error {
			if !layered[b.name] {
				return nil
			}
			_, err := b.follow(request)
			return err
		})
		switch {
		case err == nil:
			return nil
		case e.ctx.Err() != nil || e.mirror.roster.Load() == ro:
			return &failure{reason: ReasonLineFailed, err: fmt.Errorf("bring the layers in order with the snapshots: %w", err)}
		}
	}
}

// follow makes a replica follow a line, and returns its layers. request is the encoded points.Follow.
func (m *member) follow(request []byte) (layersState, error) {
	reply, err := m.Control(background, points.OpFollow, request)
	if err != nil {
		return layersState{}, fmt.Errorf("follow the line: %w", err)
	}
	f, err := decodeLayers[points.Followed](reply)
	s := layersState{State: f.State, known: true}
	if err == nil {
		err = s.check()
	}
	switch {
	case err != nil:
		return s, err
	case f.Short:
		return s, errShort
	}
	return s, nil
}

// shows returns an error if a chain lacks a ready point of the line.
func shows(line layers.Line, c layers.Chain) error {
	for _, m := range line.Points {
		if i := c.Border(m.Point); m.State == layers.Ready && (i < 0 || !c.Layers[i].Top.Flushed) {
			return fmt.Errorf("it does not show point %d: %w", m.Number, layers.ErrNoBorder)
		}
	}
	return nil
}
