package explore

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// The limits of the volume's model. A value has one bit in a word, so that a set of values is a sum.
const (
	maxMembers = 3
	maxBlocks  = 3
	maxFiles   = 6
	maxPoints  = 5
	maxReverts = 2
	maxNonces  = 6
)

// set is a set of members or of blocks, one bit for each.
type set uint8

func only(i int) set         { return 1 << i }
func (s set) has(i int) bool { return s>>i&1 != 0 }
func (s set) len() int       { return bits.OnesCount8(uint8(s)) }

var memberNames = [maxMembers]string{"a", "b", "c"}

func (s set) names() (out []string) {
	for i, n := range memberNames {
		if s.has(i) {
			out = append(out, n)
		}
	}
	return out
}

// word is the content of a block of a file: nothing (look below), zeroes, or the value of a write.
type word uint8

const (
	absent word = 1
	zeroes word = 2
)

// value is the content of write n, from 1.
func value(n uint8) word { return zeroes << n }

func (w word) String() string {
	switch {
	case w == absent:
		return "-"
	case bits.OnesCount8(uint8(w)) > 1:
		out := ""
		for rest := w; rest != 0; rest &= rest - 1 {
			out += word(1 << bits.TrailingZeros8(uint8(rest))).String()
		}
		return "{" + out + "}"
	}
	return fmt.Sprint(bits.TrailingZeros8(uint8(w)) - 1)
}

// cell is one block of one file, with its bit: the content of the cache, and all contents that a loss of power may
// leave.
type cell struct{ now, disk word }

var emptyCells = func() (c [maxBlocks]cell) {
	for b := range c {
		c[b] = cell{absent, absent}
	}
	return c
}()

// file is one file of a replica. from counts in the lowest file of a layer, top in the highest; the head has no top.
type file struct {
	cells      [maxBlocks]cell
	from       uint8
	top, nonce uint8
	flushed    bool
}

type interval struct{ to, by uint8 }

// member is one replica. All but prepared is durable, or in the cache of its machine.
type member struct {
	n        uint8
	files    [maxFiles]file // the lowest first
	reverted interval
	epoch    uint8
	marked   set // blocks

	rebuilding bool
	up         bool
	prepared   bool // the head is prepared, and changes go below it
	lossy      bool // it lost power since it was last equal to the others
}

// point is an entry of the line.
type point struct {
	number, nonce uint8
	state         layers.State
	held          bool
}

// object is the Engine object.
type object struct {
	epoch    uint8
	members  set
	counter  uint8
	points   [maxPoints]point
	reverted [maxReverts]interval
}

type phase uint8

const (
	off phase = iota
	following
	serving
)

type stage uint8

const (
	noBarrier stage = iota
	preparing
	switched
)

// engine is lost as a whole when the engine dies.
type engine struct {
	phase    phase
	roster   set // get every change
	leaving  set // failed, and still listed by the object
	followed set

	stage    stage
	attempt  uint8 // number of the intended point
	atSwitch set

	target, source uint8 // of a rebuild, from 1
	done           uint8 // number of the newest point that the target has
	doneNonce      uint8
	own            bool
}

// spent counts the events that are bounded.
type spent struct {
	writes, trims, snapshots, deletes, reverts, crashes, losses, absences, rebuilds, backups, restores, heads, holds, cuts, ends uint8
}

// state is a value: no pointers.
type state struct {
	object   object
	backup   object
	restored bool
	member   [maxMembers]member
	engine   engine
	size     uint8 // in blocks
	spent    spent

	// Ghosts.
	nonces   uint8
	truth    [maxBlocks]word // the last acknowledged change
	live     [maxBlocks]word // that, and changes that were under way when an engine died
	allowed  [maxBlocks]word // after a loss of power: flushed, or later
	snap     [maxNonces + 1][maxBlocks]word
	promised set // nonces that the user was told to be ready, and that no user deleted
	refused  set // nonces whose caller was told that the snapshot failed
	written  set // blocks that were ever written
	lastBy   uint8
}

func (b bounds) initial() state {
	s := state{size: b.size}
	for i := range b.members {
		m := &s.member[i]
		m.n, m.up = 1, true
		m.files[0].cells = emptyCells
		s.object.members |= only(int(i))
	}
	for i := range s.truth {
		s.truth[i], s.live[i], s.allowed[i] = zeroes, zeroes, zeroes
	}
	return s
}

// shape is the part of a member that its chain depends on.
type shape struct {
	n        uint8
	reverted interval
	files    [maxFiles]struct {
		from, top, nonce uint8
		flushed          bool
	}
}

// chains and lines remember earlier results. No rule changes a value that it gets.
var (
	chains = map[shape]layers.Chain{}
	lines  = map[lineShape]layers.Line{}
)

// chain returns the list of a member. Its files have the numbers of their places, from 1.
func (m *member) chain() layers.Chain {
	key := shape{n: m.n, reverted: m.reverted}
	for i := range int(m.n) {
		f, k := &m.files[i], &key.files[i]
		k.from, k.top, k.nonce, k.flushed = f.from, f.top, f.nonce, f.flushed
	}
	c, ok := chains[key]
	if !ok {
		c = m.newChain()
		chains[key] = c
	}
	return c
}

func (m *member) newChain() layers.Chain {
	c := layers.Chain{Next: layers.File(m.n + 1), Reverted: layers.Interval{To: layers.Number(m.reverted.to), By: layers.Number(m.reverted.by)}}
	first := true
	for i := range int(m.n) {
		f := &m.files[i]
		if first {
			c.Layers = append(c.Layers, layers.Layer{From: layers.Number(f.from)})
		}
		l := &c.Layers[len(c.Layers)-1]
		l.Files = append(l.Files, layers.File(i+1))
		if first = f.top > 0; first {
			l.Top = layers.Border{Point: pointOf(f.top, f.nonce), Flushed: f.flushed}
		}
	}
	return c
}

func pointOf(number, nonce uint8) layers.Point {
	return layers.Point{Number: layers.Number(number), Nonce: uint64(nonce)}
}

// setChain stores a list. A file that has a new number is empty. It returns false if the model has no room.
func (m *member) setChain(c layers.Chain) bool {
	old := *m
	m.n, m.files = 0, [maxFiles]file{}
	m.reverted = interval{uint8(c.Reverted.To), uint8(c.Reverted.By)}
	for _, l := range c.Layers {
		for j, f := range l.Files {
			if m.n == maxFiles {
				return false
			}
			to := &m.files[m.n]
			m.n++
			to.cells = emptyCells
			if int(f) <= int(old.n) {
				to.cells = old.files[f-1].cells
			}
			if j == 0 {
				to.from = uint8(l.From)
			}
			if j == len(l.Files)-1 {
				to.top, to.nonce, to.flushed = uint8(l.Top.Number), uint8(l.Top.Nonce), l.Top.Flushed
			}
		}
	}
	return true
}

type lineShape struct {
	counter  uint8
	points   [maxPoints]point
	reverted [maxReverts]interval
}

// line returns the line of an object.
func (o *object) line() layers.Line {
	key := lineShape{o.counter, o.points, o.reverted}
	l, ok := lines[key]
	if !ok {
		l = o.newLine()
		lines[key] = l
	}
	return l
}

func (o *object) newLine() layers.Line {
	l := layers.Line{Counter: layers.Number(o.counter)}
	for _, p := range o.points {
		if p.number > 0 {
			m := layers.Mark{Point: pointOf(p.number, p.nonce), State: p.state}
			if p.held {
				m.Holds = []string{"job"}
			}
			l.Points = append(l.Points, m)
		}
	}
	for _, r := range o.reverted {
		if r.by > 0 {
			l.Reverted = append(l.Reverted, layers.Interval{To: layers.Number(r.to), By: layers.Number(r.by)})
		}
	}
	return l
}

func (o *object) setLine(l layers.Line) {
	if len(l.Points) > maxPoints || len(l.Reverted) > maxReverts {
		panic("BUG: a line beyond the model's bounds")
	}
	o.counter, o.points, o.reverted = uint8(l.Counter), [maxPoints]point{}, [maxReverts]interval{}
	for i, m := range l.Points {
		o.points[i] = point{uint8(m.Number), uint8(m.Nonce), m.State, len(m.Holds) > 0}
	}
	for i, r := range l.Reverted {
		o.reverted[i] = interval{uint8(r.To), uint8(r.By)}
	}
}

// border returns the place of the file below a border, or -1.
func (m *member) border(number, nonce uint8) int {
	for i := range int(m.n) {
		if f := &m.files[i]; f.top == number && f.nonce == nonce {
			return i
		}
	}
	return -1
}

// view reads a block, from a file downwards.
func (m *member) view(top, b int) word {
	for i := top; i >= 0; i-- {
		if w := m.files[i].cells[b].now; w != absent {
			return w
		}
	}
	return zeroes
}

func (m *member) read(b int) word { return m.view(int(m.n)-1, b) }

// active is the place of the file that takes changes.
func (m *member) active() int { return int(m.chain().Active(m.prepared)) - 1 }

func (m *member) put(place, b int, w word) {
	c := &m.files[place].cells[b]
	c.now, c.disk = w, c.disk|w
}

// store puts a word and makes it durable.
func (m *member) store(place, b int, w word) { m.files[place].cells[b] = cell{w, w} }

func (m *member) sync(place int) {
	for b := range m.files[place].cells {
		c := &m.files[place].cells[b]
		c.disk = c.now
	}
}

// flush makes the unsealed files durable.
func (m *member) flush(onlyTop bool) {
	for _, f := range m.chain().Unsealed() {
		if !onlyTop || int(f) == int(m.n) {
			m.sync(int(f) - 1)
		}
	}
}

// show returns the form for the trace of a violation.
func show(s *state) string {
	var b strings.Builder
	line := func(o *object) {
		fmt.Fprintf(&b, "epoch %d%v, counter %d:", o.epoch, o.members.names(), o.counter)
		for _, p := range o.points {
			if p.number > 0 {
				fmt.Fprintf(&b, " %d/%d %s", p.number, p.nonce, [...]string{"", "intended", "ready", "deleted"}[p.state])
				if p.held {
					b.WriteString(" (held)")
				}
			}
		}
		for _, r := range o.reverted {
			if r.by > 0 {
				fmt.Fprintf(&b, " reverted(%d,%d)", r.to, r.by)
			}
		}
	}
	b.WriteString("object ")
	line(&s.object)
	fmt.Fprintf(&b, "; the volume is %v", s.truth[:s.size])
	if e := &s.engine; e.phase != off {
		fmt.Fprintf(&b, "; engine with %v leaving %v", e.roster.names(), e.leaving.names())
	}
	for i := range s.member {
		m := &s.member[i]
		if m.n == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n       %s: epoch %d", memberNames[i], m.epoch)
		for j := range int(m.n) {
			f := &m.files[j]
			fmt.Fprintf(&b, " [")
			for k := range int(s.size) {
				if c := f.cells[k]; c.now == c.disk {
					fmt.Fprintf(&b, " %v", c.now)
				} else {
					fmt.Fprintf(&b, " %v%v", c.now, c.disk)
				}
			}
			b.WriteString(" ]")
			if f.top > 0 {
				fmt.Fprintf(&b, " <%d/%d%s>", f.top, f.nonce, map[bool]string{true: " flushed"}[f.flushed])
			} else if j < int(m.n)-1 {
				b.WriteString("+")
			}
		}
		for text, is := range map[string]bool{" AWAY": !m.up, " REBUILDING": m.rebuilding, " prepared": m.prepared, " lost power": m.lossy} {
			if is {
				b.WriteString(text)
			}
		}
		if m.marked != 0 {
			fmt.Fprintf(&b, " marked %03b", m.marked)
		}
	}
	return b.String()
}
