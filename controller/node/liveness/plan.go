package liveness

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// rules are the numbers that a verdict rests on. Production uses the standard ones; the model of the tests drops one at a time.
type rules struct {
	interval time.Duration // between two questions to a share
	lateness time.Duration // by which a tick of the loop may be late; later, the count starts again
	patience int           // unanswered questions in a row that make a node silent
	// Nodes that fall silent within together of each other are judged after longWait of silence: a switch restarts, nodes seldom die in company. A
	// node whose share alone hangs does not count.
	together, longWait time.Duration
	// A verdict that proved wrong bars the next one for firstBar, then for twice as long each time, at most maxBar.
	firstBar, maxBar time.Duration
	// unheard: an address counts that has never answered this process.
	unheard bool
}

var standard = rules{
	interval: 500 * time.Millisecond, lateness: 250 * time.Millisecond, patience: 3,
	together: 3 * time.Second, longWait: 8 * time.Second,
	firstBar: 10 * time.Minute, maxBar: 24 * time.Hour,
}

// round is what came of one address's questions since the last tick.
type round struct {
	heard    bool // it has answered this process at least once
	answered bool // since the last tick
}

// count is what the leader knows of nodes from its questions. It has no clock and asks nobody.
type count struct {
	rules    rules
	lastTick time.Time
	// epoch is raised by each late tick: what was found out in an earlier epoch proves nothing.
	epoch int
	nodes map[string]*tally
	// silences are when nodes fell silent last, also of nodes that answer again: they are what a second silence is compared with.
	silences map[string]time.Time
	bars     map[string]bar
}

// tally is the count of one node.
type tally struct {
	asked      bool // at the last tick a question was asked that counts
	unanswered int
	since      time.Time // when the first of them was asked
	tried      time.Time // when the last judgement began
	// lived is when the last judgement began that found the node alive, although no question was answered since: its share hangs. Zero: there is none.
	lived time.Time
}

func newCount(r rules) *count {
	return &count{rules: r, nodes: map[string]*tally{}, silences: map[string]time.Time{}, bars: map[string]bar{}}
}

// tick counts what has come since the last tick, and returns the nodes that are to be judged now, by name. nodes has the rounds of
// the addresses that are asked, by node.
func (c *count) tick(now time.Time, nodes map[string][]round) []string {
	last := c.lastTick
	c.lastTick = now
	isLate := !last.IsZero() && now.Sub(last) > c.rules.interval+c.rules.lateness
	if isLate {
		c.epoch++
	}
	for name, n := range c.nodes {
		if _, isAsked := nodes[name]; !isAsked || isLate {
			*n = tally{}
		}
		if !slices.ContainsFunc(nodes[name], c.counts) {
			delete(c.nodes, name)
		}
	}
	for name, rounds := range nodes {
		if !slices.ContainsFunc(rounds, c.counts) {
			continue
		}
		n := c.nodes[name]
		if n == nil {
			n = &tally{}
			c.nodes[name] = n
		}
		c.add(name, n, rounds, last, now)
	}
	c.forgetOld(now)
	return c.suspects(now)
}

// counts tells whether the silence of an address says anything: a network policy may keep it from ever answering.
func (c *count) counts(r round) bool { return r.heard || c.rules.unheard }

func (c *count) add(name string, n *tally, rounds []round, last, now time.Time) {
	wasAsked := n.asked
	n.asked = true
	switch {
	case slices.ContainsFunc(rounds, func(r round) bool { return r.answered }):
		n.unanswered, n.since, n.lived = 0, time.Time{}, time.Time{}
		return
	case !wasAsked:
		return
	}
	n.unanswered++
	if n.unanswered == 1 {
		n.since = last
	}
	if n.unanswered == c.rules.patience {
		c.silences[name] = now
	}
}

// judgeAgain is how soon a silent node is judged again where nothing could be found out.
const judgeAgain = time.Second

// suspects are silent nodes that no brake holds, and that were not judged a moment ago. A node whose share hangs is judged in spite of a
// brake, which only holds verdicts: that it still lives releases the brake on others.
func (c *count) suspects(now time.Time) []string {
	var found []string
	for name, n := range c.nodes {
		if c.isSilent(name) && (!c.isBraked(name, now) || !n.lived.IsZero()) && now.Sub(n.tried) >= judgeAgain {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// isSilent tells whether too many questions in a row were not answered.
func (c *count) isSilent(node string) bool {
	n := c.nodes[node]
	return n != nil && n.unanswered >= c.rules.patience
}

// isBraked tells whether another node fell silent together with this one, and too little time has passed since. Another node of which something
// has answered since this one fell silent has not lost its network with it: only its share hangs.
func (c *count) isBraked(node string, now time.Time) bool {
	n, at := c.nodes[node], c.silences[node]
	if n == nil || now.Sub(n.since) >= c.rules.longWait {
		return false
	}
	for other, when := range c.silences {
		if o := c.nodes[other]; o != nil && o.lived.After(n.since) {
			continue
		}
		if other != node && at.Sub(when).Abs() < c.rules.together {
			return true
		}
	}
	return false
}

// begin marks that a node is being judged, and returns the epoch to hand to mayFall.
func (c *count) begin(node string, now time.Time) int {
	if n := c.nodes[node]; n != nil {
		n.tried = now
	}
	return c.epoch
}

// mayFall tells whether a judgement that began in an epoch still counts: the loop was on time, nothing was answered in the meantime, and no
// brake holds the node, for another may have fallen silent since, nor a bar.
func (c *count) mayFall(node, bootID string, epoch int, now time.Time) bool {
	onTime := now.Sub(c.lastTick) <= c.rules.interval+c.rules.lateness
	return onTime && epoch == c.epoch && c.isSilent(node) && !c.isBraked(node, now) && !c.isBarred(node, bootID, now)
}

// lives starts a node's count again: something else than a question was answered, after the last judgement began.
func (c *count) lives(node string) {
	if n := c.nodes[node]; n != nil {
		*n = tally{asked: false, tried: n.tried, lived: n.tried}
	}
}

// forgetOld drops silences that are too old to be compared with another one.
func (c *count) forgetOld(now time.Time) {
	maps.DeleteFunc(c.silences, func(_ string, at time.Time) bool { return now.Sub(at) > max(c.rules.together, c.rules.longWait) })
}

// bar keeps a node from being called down by questions, as its last verdict was wrong.
type bar struct {
	bootID string // of the node; another boot is another node
	until  time.Time
	length time.Duration
}

// wrong notes that a node answers again in the boot in which it was called down, and returns until when it is barred.
func (c *count) wrong(node, bootID string, now time.Time) bar {
	b := bar{bootID: bootID, length: c.rules.firstBar}
	if was, ok := c.bars[node]; ok && was.bootID == bootID && now.Sub(was.until) < c.rules.maxBar {
		b.length = min(2*was.length, c.rules.maxBar)
	}
	b.until = now.Add(b.length)
	c.bars[node] = b
	return b
}

func (c *count) isBarred(node, bootID string, now time.Time) bool {
	b, ok := c.bars[node]
	return ok && b.bootID == bootID && now.Before(b.until)
}

// leaseState is what a node's Lease says. Only daemons of an earlier release renew it.
type leaseState int

const (
	leaseNotHeld leaseState = iota
	leaseRenewed            // within types.NodeLeaseSilence
	leaseLate
	leaseUnread // it is held, and cannot be read
)

// finding is what was found out of a silent node.
type finding struct {
	asked   bool // there is an address to ask at all
	answers bool // it answered a new connection of the leader
	lease   leaseState
	nodes   int  // in the cluster, with the leader's and the silent one
	apiRead bool // the API server answers a read that needs its quorum
	said    testimony
}

// testimony is what the daemons of other nodes said.
type testimony struct {
	reached bool   // one of them reaches the node
	agrees  string // the node of the one that does not; "": none answered
	earlier bool   // all that could be asked are of an earlier release, and there was one
}

// outcome is what follows from a finding.
type outcome struct {
	lives, down bool
	witness     string // if down; "": there was none
	why         string // if neither
}

// verdict decides on a silent node. The first line that applies counts:
//
//	it answers the leader or a witness, by whatever   it lives
//	it has no address that could be asked             undecided
//	its lease (earlier release) was renewed           undecided: it is judged again when that is late
//	its lease is held and cannot be read              undecided: the leader is cut off itself
//	there is no node beside it                        undecided
//	the API server does not answer                    undecided: leader and witness may be cut off together, and what the leader writes
//	                                                  would arrive when they no longer are
//	a witness does not reach it either                down, with that witness
//	two nodes, or witnesses of an earlier release     down, without a witness
//	otherwise                                         undecided: no witness answered
func verdict(f finding) outcome {
	switch {
	case f.answers || f.said.reached:
		return outcome{lives: true}
	case !f.asked:
		return outcome{why: "it has no address to ask"}
	case f.lease == leaseRenewed:
		return outcome{why: "it has renewed its lease"}
	case f.lease == leaseUnread:
		return outcome{why: "its lease cannot be read"}
	case f.nodes < 2:
		return outcome{why: "the cluster has no other node"}
	case !f.apiRead:
		return outcome{why: "the API server does not answer"}
	case f.said.agrees != "":
		return outcome{down: true, witness: f.said.agrees}
	case f.nodes > 2 && !f.said.earlier:
		return outcome{why: "no other node's daemon could be asked"}
	}
	return outcome{down: true}
}

// daemon is one that can be asked.
type daemon struct{ node, address string }

// users are the nodes with a connection to a node's shares or volumes.
type users struct{ mounts, replicas []string }

// byRelation sorts daemons: first those of nodes that mount a share of the silent node, as they ask it all the time, then those with a replica of
// its volumes, to which its engines are connected; then all others, by name.
func byRelation(daemons []daemon, u users) []daemon {
	rank := func(d daemon) int {
		switch {
		case slices.Contains(u.mounts, d.node):
			return 0
		case slices.Contains(u.replicas, d.node):
			return 1
		}
		return 2
	}
	return slices.SortedFunc(slices.Values(daemons), func(a, b daemon) int {
		if by := rank(a) - rank(b); by != 0 {
			return by
		}
		return strings.Compare(a.node, b.node)
	})
}
