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
//
// Each stage adds a file, up to layers.AllFiles. Without a base the target starts with one file, so it never has more
// files than its source has layers. With a base, a layer may have several files: the ones that StartRebuild has joined,
// or those of borders that were joined before. If SealStage then returns layers.ErrManyFiles, it has changed nothing.
// The caller joins the borders that the line has deleted and calls Merge, which also works while the stage's content
// stays in the head, and repeats SealStage. So each layer at and below the base ends as one file.

// StartRebuild makes all layers above a flushed border one layer. A zero base means that no border stays. Then the
// content is worth nothing, so an empty file replaces all files. A replica that has one file keeps it. Views at the
// other borders end. Before that it removes the kept maps: the replica may have missed a revert that makes them wrong.
// It is refused while a merge runs. It is safe to repeat, and does not drop what was copied since.
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
	next, err := c.commitStart(layers.StartRebuild(s.list.chain, base), base)
	if err != nil {
		return fmt.Errorf("start a rebuild: %w", err)
	}
	c.attempt = layers.Point{}
	for v := range c.views {
		if next.Border(v.point) < 0 {
			v.end(fmt.Errorf("border %d: %w", v.point.Number, layers.ErrNoBorder))
		}
	}
	return nil
}

// commitStart replaces the list by the one with joined layers, or by an empty one without a base. On a full disk
// without room for the empty file the joined layers stay, and their blocks are the target's own. It returns the list
// in force. The caller holds merging and lane.
func (c *Chain) commitStart(joined layers.Chain, base layers.Point) (layers.Chain, error) {
	if base == (layers.Point{}) && joined.FileCount() > 1 {
		empty := joined
		empty.Layers = []layers.Layer{{From: joined.Layers[0].From, Files: []layers.File{joined.Next}}}
		empty.Next++
		err := c.commit(empty, false)
		if err == nil || c.Err() != nil || !isNoSpace(err) {
			return empty, err
		}
	}
	if len(joined.Layers) == len(c.chain().Layers) {
		return joined, nil
	}
	return joined, c.commit(joined, false)
}

// SealStage ends a stage of a rebuild: it makes everything durable, and then the border above it, with an empty head.
// No change may be under way. It is safe to repeat. It needs a further file: after layers.ErrManyFiles the caller
// merges and repeats it.
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
	if l.FileCount() >= layers.AllFiles {
		return fmt.Errorf("seal the stage at point %d: %w", to.Number, layers.ErrManyFiles)
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
