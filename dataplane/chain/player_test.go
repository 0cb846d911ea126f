package chain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testSector = 512
	// testSize has a last block that is short.
	testSize = 10*layers.BlockBytes - 3*testSector
)

// player is a replica in memory together with a simple model of it: the content of the volume, and a copy of it for
// each point. It plays the part of the engine and of the Engine object.
type player struct {
	f    *memfs.FS
	dir  fsys.Dir
	c    *Chain
	boot int
	line layers.Line

	now []byte // the content
	// sets has, for each sector, all bytes that it may have after a loss of power: the ones of the last flush, and later ones.
	sets []byteSet
	// under has the sectors of the change under way, with the byte that it writes.
	under    map[int64]byte
	growing  int64 // the size of a growth under way
	snaps    map[layers.Point][]byte
	attempt  layers.Point
	switched bool
	stamp    byte
	nonce    uint64
	entries  int64
	opens    int
	full     bool                    // the disk may be full
	copies   map[layers.Point][]byte // the content at the bases of backups
}

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(b byte)      { s[b/64] |= 1 << (b % 64) }
func (s *byteSet) has(b byte) bool { return s[b/64]&(1<<(b%64)) != 0 }

func newPlayer() (*player, error) {
	p, err := newReplica(testSize)
	if err != nil {
		return nil, err
	}
	p.now = make([]byte, testSize)
	p.settle()
	return p, p.open()
}

// newReplica returns a player with a replica of a size, and without a model. The replica is not open.
func newReplica(size int64) (*player, error) {
	p := &player{f: memfs.New(), boot: 1, snaps: map[layers.Point][]byte{}, copies: map[layers.Point][]byte{}, under: map[int64]byte{}, entries: 16}
	p.f.MkdirAll(testDir)
	d, err := p.f.OpenDir(testDir)
	if err != nil {
		return nil, err
	}
	data, err := d.OpenFile(lowestName, fsys.CreateNew)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(data.Truncate(size), data.Sync(), d.Sync(), Create(d, testUID), d.Close()); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *player) bootID() string { return fmt.Sprintf("boot-%d", p.boot) }

// open opens the replica, and does the start of an engine: the line first, then the replica follows it.
func (p *player) open() (err error) {
	if p.dir, err = p.f.OpenDir(testDir); err != nil {
		return err
	}
	if p.c, err = Open(p.dir, Options{
		UID: testUID, BootID: p.bootID(), SameSuperblock: true, Cache: NewCache(p.cacheBytes()),
		recentEntries: p.entries, indexLayers: 1,
	}); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	start, err := layers.PlanStart(p.line, []layers.Chain{p.c.Layers()}, nil)
	if err != nil {
		return err
	}
	if len(start.Lost)+len(start.Adopted) > 0 {
		return fmt.Errorf("a start lost %v and adopted %v", start.Lost, start.Adopted)
	}
	p.line, p.attempt, p.switched = start.Line, layers.Point{}, false
	for _, m := range p.line.Points { // as if this member had been away since the deletions
		if m.State == layers.Deleted {
			if p.line, err = p.line.Forget(m.Point); err != nil {
				return err
			}
		}
	}
	if _, err = p.c.Follow(p.line); err != nil {
		return err
	}
	return p.c.ForgetBases(p.line)
}

// cacheBytes is small in some openings, so that pages leave the cache.
func (p *player) cacheBytes() int64 {
	if p.opens++; p.opens%2 == 0 {
		return 2 * mapPageBytes
	}
	return 64 << 10
}

// settle records that a loss of power no longer changes the content.
func (p *player) settle() {
	p.sets = make([]byteSet, (len(p.now)+testSector-1)/testSector)
	for i, b := range p.now {
		p.sets[i/testSector].add(b)
	}
}

// change does a change that makes each byte of a range b.
func (p *player) change(off, length int64, b byte, do func() error) error {
	for s := off / testSector; s*testSector < off+length; s++ {
		p.under[s] = b
		p.sets[s].add(b)
	}
	err := do()
	switch {
	case err == nil:
		for i := off; i < off+length; i++ {
			p.now[i] = b
		}
	case isNoSpace(err):
		if got := p.look(p.under); got != nil {
			return got
		}
	default:
		return err
	}
	clear(p.under)
	return nil
}

func (p *player) write(off, length int64) error {
	p.stamp = p.stamp%250 + 1
	b := slices.Repeat([]byte{p.stamp}, int(length))
	return p.change(off, length, p.stamp, func() error { return p.c.WriteAt(b, off) })
}

func (p *player) punch(off, length int64) error {
	return p.change(off, length, 0, func() error { return p.c.Punch(off, length) })
}

func (p *player) zero(off, length int64) error {
	return p.change(off, length, 0, func() error { return p.c.Zero(off, length) })
}

func (p *player) flush() error {
	if err := p.c.Datasync(); err != nil {
		return err
	}
	p.settle()
	return nil
}

func (p *player) grow(by int64) error {
	if p.attempt.Number > 0 {
		return nil
	}
	p.growing = int64(len(p.now)) + by
	err := p.c.Truncate(p.growing)
	if err != nil && !isNoSpace(err) {
		return err
	}
	if err == nil {
		p.resize(p.growing)
	}
	p.growing = 0
	return nil
}

// resize sets the size of the model. New sectors are zeroes. The last sector was whole.
func (p *player) resize(size int64) {
	for int64(len(p.now)) < size {
		p.now = append(p.now, 0)
	}
	p.now = p.now[:size]
	for int64(len(p.sets))*testSector < size {
		s := byteSet{}
		s.add(0)
		p.sets = append(p.sets, s)
	}
	p.sets = p.sets[:size/testSector]
}

// prepare, doSwitch, seal and giveUp are the steps of a snapshot.
func (p *player) prepare() error {
	if p.attempt.Number > 0 {
		return nil
	}
	p.nonce++
	line, point, err := p.line.Intend(p.nonce, "")
	if err != nil {
		return err
	}
	p.line, p.attempt, p.switched = line, point, false
	if err := p.c.Prepare(point, layers.MostFiles); err != nil {
		if !isNoSpace(err) && !errors.Is(err, layers.ErrManyFiles) {
			return err
		}
		return p.giveUp()
	}
	return nil
}

func (p *player) doSwitch() error {
	if p.attempt.Number == 0 || p.switched {
		return nil
	}
	if err := p.c.Switch(p.attempt); err != nil {
		return err
	}
	p.switched = true
	p.snaps[p.attempt] = slices.Clone(p.now)
	return nil
}

func (p *player) seal() error {
	if !p.switched {
		return nil
	}
	if err := p.c.Seal(p.attempt); err != nil {
		return err
	}
	p.settle()
	line, err := p.line.Ready(p.attempt)
	p.line, p.attempt, p.switched = line, layers.Point{}, false
	return err
}

func (p *player) giveUp() error {
	if p.attempt.Number == 0 {
		return nil
	}
	line, err := p.line.GiveUp(p.attempt)
	if err != nil {
		return err
	}
	point := p.attempt
	p.line, p.attempt, p.switched = line, layers.Point{}, false
	delete(p.snaps, point)
	if err := p.c.Join(point, p.line, nil); err != nil && !errors.Is(err, layers.ErrNoBorder) {
		return err
	}
	return nil
}

func (p *player) snapshot() error {
	for _, step := range []func() error{p.prepare, p.doSwitch, p.seal} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ready are the points that a user can read.
func (p *player) ready() (points []layers.Point) {
	for _, m := range p.line.Points {
		if m.State == layers.Ready {
			points = append(points, m.Point)
		}
	}
	return points
}

// remove deletes the i-th snapshot and joins its border.
func (p *player) remove(i int) error {
	ready := p.ready()
	if len(ready) == 0 || p.attempt.Number > 0 {
		return nil
	}
	point := ready[i%len(ready)]
	line, err := p.line.Delete(point)
	if err != nil {
		return err
	}
	p.line = line
	delete(p.snaps, point)
	return p.c.Join(point, p.line, nil)
}

// backup makes the i-th snapshot the base of a job.
func (p *player) backup(i int, by string) error {
	ready := p.ready()
	if len(ready) == 0 {
		return nil
	}
	point := ready[i%len(ready)]
	line, err := p.line.SetBase(by, point)
	if err != nil {
		return err
	}
	p.line, p.copies[point] = line, slices.Clone(p.snaps[point])
	return p.c.ForgetBases(p.line)
}

// merge merges until nothing is left, or until it has checked the context a number of times.
func (p *player) merge(asks int) error {
	ctx := &countingContext{Context: context.Background(), left: asks}
	for range 20 {
		more, wait, err := p.c.Merge(ctx)
		switch {
		case wait == layers.NeedsSpace && !p.full:
			return errors.New("a merge waits for space, and the disk has some")
		case errors.Is(err, context.Canceled), errors.Is(err, layers.ErrBusy), isNoSpace(err):
			return nil
		case err != nil || !more:
			return err
		}
	}
	return errors.New("merging does not end")
}

// countingContext is cancelled after a number of checks.
type countingContext struct {
	context.Context
	left int
}

func (c *countingContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// revert returns to the i-th snapshot.
func (p *player) revert(i int) error {
	ready := p.ready()
	if len(ready) == 0 || p.attempt.Number > 0 {
		return nil
	}
	to := ready[i%len(ready)]
	var later []layers.Number
	for _, q := range ready {
		if q.Number > to.Number {
			later = append(later, q.Number)
			delete(p.snaps, q)
		}
	}
	line, err := p.line.Revert(to, later...)
	if err != nil {
		return err
	}
	// The object has recorded it, so from now on the volume has the content of the point, whatever happens. Only its
	// size is the present one.
	p.line = line
	size := int64(len(p.now))
	p.now = slices.Clone(p.snaps[to])
	p.resize(size)
	p.settle()
	_, err = p.c.Follow(p.line)
	if isNoSpace(err) {
		return errFull
	}
	return err
}

// errFull says that a full disk ends a history: the members cannot follow a revert.
var errFull = errors.New("the disk is full")

// stopped ends the process or the machine.
type stopped int

const (
	killed stopped = iota
	powerLost
	failed // a sync failed; then the process ends
)

// again opens the replica after a stop, and compares it with the model.
func (p *player) again(how stopped, rng *rand.Rand) error {
	if how == powerLost {
		p.f.Crash(rng)
		p.boot++
	} else {
		p.f.Kill()
	}
	if err := p.open(); err != nil {
		return err
	}
	if p.growing > 0 {
		size, err := p.c.Size()
		if err != nil {
			return err
		}
		if size != int64(len(p.now)) && size != p.growing {
			return fmt.Errorf("it has %d bytes after a growth from %d to %d", size, len(p.now), p.growing)
		}
		p.resize(size)
		p.growing = 0
	} else if size, err := p.c.Size(); err != nil || size != int64(len(p.now)) {
		if how != powerLost || err != nil {
			return fmt.Errorf("it has %d bytes, not %d: %w", size, len(p.now), err)
		}
		p.resize(size) // a growth is durable after a flush
	}
	if how == killed {
		if err := p.look(p.under); err != nil {
			return fmt.Errorf("after a kill: %w", err)
		}
	} else if err := p.lookAfterLoss(); err != nil {
		return fmt.Errorf("after a loss: %w", err)
	}
	clear(p.under)
	return p.check()
}

// look compares the content with the model, byte by byte. The sectors of under may have the old or the new bytes; the
// model takes them over.
func (p *player) look(under map[int64]byte) error {
	got := make([]byte, len(p.now))
	if err := p.c.ReadAt(got, 0); err != nil {
		return err
	}
	for i, b := range got {
		s := int64(i / testSector)
		if next, is := under[s]; is && b == next {
			p.now[i] = b
		}
		if b != p.now[i] {
			return fmt.Errorf("byte %d (block %d) is %d, not %d", i, i/layers.BlockBytes, b, p.now[i])
		}
	}
	return nil
}

// lookAfterLoss compares the content with everything that a loss of power may leave.
func (p *player) lookAfterLoss() error {
	got := make([]byte, len(p.now))
	if err := p.c.ReadAt(got, 0); err != nil {
		return err
	}
	for i, b := range got {
		if !p.sets[i/testSector].has(b) {
			return fmt.Errorf("byte %d (block %d) is %d, which is older than the last flush; it was %d", i, i/layers.BlockBytes, b, p.now[i])
		}
	}
	p.now = got
	p.settle()
	return nil
}

// check compares the volume and each snapshot with the model.
func (p *player) check() error {
	if err := p.look(nil); err != nil {
		return err
	}
	if err := checkExtents(p.c.Extents, p.now); err != nil {
		return err
	}
	for _, point := range p.ready() {
		if err := p.checkView(point); err != nil {
			return fmt.Errorf("snapshot %d: %w", point.Number, err)
		}
	}
	return p.checkChanged()
}

func (p *player) checkView(point layers.Point) error {
	v, err := p.c.View(point)
	if err != nil {
		return err
	}
	want := p.snaps[point]
	if v.Size() != int64(len(want)) {
		return fmt.Errorf("it has %d bytes, not %d", v.Size(), len(want))
	}
	got := make([]byte, len(want))
	if err := v.ReadAt(got, 0); err != nil {
		return err
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d (block %d) is %d, not %d", i, i/layers.BlockBytes, got[i], want[i])
		}
	}
	return errors.Join(checkExtents(v.Extents, want), v.Close())
}

// checkExtents checks that extents cover the content, are not empty, alternate, and call only zeroes holes.
func checkExtents(extents func(off, end int64) ([]nbd.Extent, error), want []byte) error {
	at, last := int64(0), nbd.ExtentFlags(99)
	found, err := extents(0, int64(len(want)))
	if err != nil {
		return err
	}
	for _, e := range found {
		if e.Offset != at || e.Length <= 0 || e.Flags == last {
			return fmt.Errorf("extents: %+v", found)
		}
		at, last = at+e.Length, e.Flags
		if e.Flags != 0 && !isZero(want[e.Offset:e.Offset+e.Length]) {
			return fmt.Errorf("extent %+v is no hole", e)
		}
	}
	if at != int64(len(want)) {
		return fmt.Errorf("extents end at %d", at)
	}
	return nil
}

// checkChanged checks for each pair of snapshots, and for each base of a backup with each later snapshot, that Changed
// names all differences.
func (p *player) checkChanged() error {
	ready := p.ready()
	for i, from := range ready {
		for _, to := range ready[i:] {
			if err := p.checkNames(from, p.snaps[from], to); err != nil {
				return err
			}
		}
	}
	for _, base := range p.line.Bases {
		for _, to := range ready {
			if to.Number <= base.Number {
				continue
			}
			err := p.checkNames(base.Point, p.copies[base.Point], to)
			if p.full && errors.Is(err, layers.ErrNoBorder) {
				continue
			}
			if err != nil {
				return fmt.Errorf("since the backup of point %d (state %d): %w", base.Number, p.line.State(base.Point), err)
			}
		}
	}
	return nil
}

func (p *player) checkNames(from layers.Point, a []byte, to layers.Point) error {
	b, named := p.snaps[to], make([]bool, len(p.now))
	for r, err := range p.c.Changed(from, to) {
		if err != nil {
			return err
		}
		for i := r.Off; i < r.Off+r.Length; i++ {
			named[i] = true
		}
	}
	for i := range b {
		if differs := i < len(a) && a[i] != b[i] || i >= len(a) && b[i] != 0; differs && !named[i] {
			return fmt.Errorf("byte %d (block %d) differs between points %d and %d, and Changed does not name it",
				i, i/layers.BlockBytes, from.Number, to.Number)
		}
	}
	return nil
}

// isStopped reports whether an error comes from a stop or a failed sync of the test.
func isStopped(err error) bool {
	return errors.Is(err, memfs.ErrCrashed) || errors.Is(err, syscall.EIO)
}

func start(t testing.TB) *player {
	t.Helper()
	p, err := newPlayer()
	require.NoError(t, err)
	return p
}
