package chain

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// Prepare puts a border and an empty head above the present head, durably. Changes still go below the border until
// Switch. limit is layers.MostFiles, or layers.AllFiles for the point of a rebuild. It is safe to repeat in the opening
// that prepared the point. After another opening, and after ForgetAttempt, it is refused: the head above the border may
// have changes from before the switch of the other members.
func (c *Chain) Prepare(p layers.Point, limit int) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	if s.list.chain.Border(p) >= 0 {
		if c.attempt == p {
			return nil
		}
		return fmt.Errorf("border %d: %w", p.Number, layers.ErrBorderGiven)
	}
	if s.prepared {
		return fmt.Errorf("border %d is prepared: %w", c.attempt.Number, layers.ErrBusy)
	}
	next, err := s.list.chain.Prepare(p, limit)
	if err != nil {
		return err
	}
	if err := c.commit(next, true); err != nil {
		return fmt.Errorf("prepare point %d: %w", p.Number, err)
	}
	c.attempt = p
	return nil
}

// Switch lets changes go to the head above the border. It is in memory, and waits for changes under way, of which the
// engine has none. It is safe to repeat.
func (c *Chain) Switch(p layers.Point) error {
	if err := c.usable(); err != nil {
		return err
	}
	c.lane.Lock()
	defer c.lane.Unlock()
	s := c.state.Load()
	if c.attempt != p || s.list.chain.Border(p) < 0 {
		return fmt.Errorf("switch at point %d: %w", p.Number, layers.ErrNotPrepared)
	}
	c.switchLocked(s)
	return nil
}

// switchLocked lets changes go to the head. The caller holds lane.
func (c *Chain) switchLocked(s *state) {
	if s.prepared {
		c.publish(s, &state{list: s.list, files: s.files, index: s.index})
	}
}

// ForgetAttempt ends the attempt of a session that has ended. As after another opening, changes go to the head, and the
// point that was prepared can be neither prepared again nor switched to: the head above its border may have changes
// from before the switch of the other members. Its border stays until it is joined. The call is in memory, waits for
// changes under way, and is safe to repeat.
func (c *Chain) ForgetAttempt() {
	c.lane.Lock()
	defer c.lane.Unlock()
	c.switchLocked(c.state.Load())
	c.attempt = layers.Point{}
}

// Seal makes everything below a border durable, and then the statement that it is. It is safe to repeat.
func (c *Chain) Seal(p layers.Point) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	i := s.list.chain.Border(p)
	switch {
	case i < 0:
		return fmt.Errorf("border %d: %w", p.Number, layers.ErrNoBorder)
	case s.list.chain.Layers[i].Top.Flushed:
		return nil
	case s.prepared:
		return fmt.Errorf("border %d: %w", p.Number, ErrNotSwitched)
	}
	was := s.unsealed()
	if err := c.Datasync(); err != nil {
		return err
	}
	next, err := s.list.chain.Seal(p)
	if err != nil {
		return err
	}
	if err := c.commit(next, false); err != nil {
		return fmt.Errorf("seal point %d: %w", p.Number, err)
	}
	c.dropRecents(was)
	return nil
}

// dropRecents removes recent of the files that have become sealed. Their maps have all bits.
func (c *Chain) dropRecents(was []*file) {
	still := map[*file]bool{}
	for _, f := range c.state.Load().unsealed() {
		still[f] = true
	}
	c.flushing.Lock()
	defer c.flushing.Unlock()
	for _, f := range was {
		if p := f.presence(); p != nil && !still[f] {
			_ = p.dropRecent()                      // it was not synced, and need not be
			_ = unlinkIfAny(c.dir, recentName(f.n)) // best effort: an opening does not read it
		}
	}
}

// Join takes a border away: the layers on both sides become one, and no view at another border changes. Later, Merge
// makes one file of their files. line decides, so the caller passes the one that the object has recorded. needed are
// the borders that a rebuild needs. A border that a view reads is refused.
func (c *Chain) Join(p layers.Point, line layers.Line, needed []layers.Point) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	under := c.attempt.Number > 0 && line.State(c.attempt) == layers.Intended
	if !line.MayJoin(p, layers.Busy{Barrier: under, Needed: needed}) {
		return fmt.Errorf("border %d: %w", p.Number, layers.ErrBusy)
	}
	for v := range c.views {
		if v.point == p {
			return fmt.Errorf("border %d: %w", p.Number, layers.ErrHeld)
		}
	}
	next, err := s.list.chain.Join(p)
	if err != nil {
		return err
	}
	if line.Wanted(p) {
		if err := c.keepMaps(s.list.chain, []layers.Point{p}); err != nil {
			return fmt.Errorf("keep the map of point %d: %w", p.Number, err)
		}
	}
	// If the members have not switched, the head takes changes from now on: both files are the head.
	if err := c.commit(next, s.prepared && c.attempt != p); err != nil {
		return fmt.Errorf("join at point %d: %w", p.Number, err)
	}
	if c.attempt == p {
		c.attempt = layers.Point{}
	}
	return nil
}

// Follow brings the borders in order with the line, by one replacement of the list. A replica does it at each start,
// before members are compared. It is refused while a merge runs. Views at borders that go end.
func (c *Chain) Follow(line layers.Line) (layers.Followed, error) {
	if !c.merging.TryLock() {
		return layers.Followed{}, fmt.Errorf("follow the line: a merge is running: %w", layers.ErrBusy)
	}
	defer c.merging.Unlock()
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return layers.Followed{}, err
	}
	s := c.state.Load()
	f := line.Follow(s.list.chain)
	if len(f.Joined)+len(f.Dropped) == 0 && f.Chain.Reverted == s.list.chain.Reverted && f.Chain.Next == s.list.chain.Next {
		return f, nil
	}
	if err := c.followKept(line, s.list.chain, f.Joined); err != nil {
		return layers.Followed{}, fmt.Errorf("follow the line: %w", err)
	}
	prepared := s.prepared && f.Chain.Border(c.attempt) >= 0
	if err := c.commit(f.Chain, prepared); err != nil {
		return layers.Followed{}, fmt.Errorf("follow the line: %w", err)
	}
	if f.Chain.Border(c.attempt) < 0 {
		c.attempt = layers.Point{}
	}
	for v := range c.views {
		if f.Chain.Border(v.point) < 0 {
			v.end(fmt.Errorf("border %d: %w", v.point.Number, layers.ErrNoBorder))
		}
	}
	return f, nil
}
