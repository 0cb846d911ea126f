package chain

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// The target of a rebuild makes its layers again, from the newest point that it shares with its source:
//
//	StartRebuild    all layers above the base become one, the head. The copy writes to it
//	SealStage       the head has the content of one point: flushed, then it becomes the layer below that border
//	EndRebuild      the head has the content of the volume, and every change since the target joined
//
// Each is one replacement of the list. A crash between two of them leaves a target whose content is worth nothing above
// its newest border, as its metadata says. The next rebuild starts there.

// StartRebuild makes all layers above a flushed border one layer. A zero base means that no border stays. Views at the
// other borders end. Before that it removes the kept maps: the replica may have missed a revert that makes them wrong. It is refused while a merge runs. It is safe to repeat.
func (c *Chain) StartRebuild(base layers.Point) error {
	if !c.merging.TryLock() {
		return fmt.Errorf("start a rebuild: a merge is running: %w", layers.ErrBusy)
	}
	defer c.merging.Unlock()
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	if i := s.list.chain.Border(base); base != (layers.Point{}) && (i < 0 || !s.list.chain.Layers[i].Top.Flushed) {
		return fmt.Errorf("start a rebuild at border %d: %w", base.Number, layers.ErrNoBorder)
	}
	if err := c.leaveKept(func([]layers.KeptMap) []layers.KeptMap { return nil }); err != nil {
		return fmt.Errorf("start a rebuild: %w", err)
	}
	next := layers.StartRebuild(s.list.chain, base)
	if len(next.Layers) != len(s.list.chain.Layers) {
		if err := c.commit(next, false); err != nil {
			return fmt.Errorf("start a rebuild: %w", err)
		}
	}
	c.attempt = layers.Point{}
	for v := range c.views {
		if next.Border(v.point) < 0 {
			v.end(fmt.Errorf("border %d: %w", v.point.Number, layers.ErrNoBorder))
		}
	}
	return nil
}

// SealStage ends a stage of a rebuild: it makes everything durable, and then the border above it, with an empty head.
// No change may be under way. It is safe to repeat.
func (c *Chain) SealStage(line layers.Line, to layers.Point) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	l := s.list.chain
	if i := l.Border(to); i >= 0 && i == l.Head()-1 && l.Layers[i].Top.Flushed {
		return nil
	}
	for _, layer := range l.Layers {
		if layer.Top.Number >= to.Number {
			return fmt.Errorf("border %d is not below point %d: %w", layer.Top.Number, to.Number, layers.ErrBusy)
		}
	}
	if s.prepared || to.Number == 0 {
		return fmt.Errorf("seal the stage at point %d: %w", to.Number, layers.ErrBusy)
	}
	was := s.unsealed()
	if err := c.Datasync(); err != nil {
		return err
	}
	if err := c.commit(line.SealStage(l, to), false); err != nil {
		return fmt.Errorf("seal the stage at point %d: %w", to.Number, err)
	}
	c.dropRecents(was)
	return nil
}

// EndRebuild ends the last stage. Changes may be under way: the caller flushes before an epoch lists the target. It is
// safe to repeat.
func (c *Chain) EndRebuild(line layers.Line) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	if s.prepared {
		return fmt.Errorf("end a rebuild: %w", layers.ErrBusy)
	}
	next := line.EndRebuild(s.list.chain)
	head := next.Head()
	if next.Layers[head].From == s.list.chain.Layers[head].From && next.Reverted == s.list.chain.Reverted {
		return nil
	}
	if err := c.commit(next, false); err != nil {
		return fmt.Errorf("end a rebuild: %w", err)
	}
	return nil
}
