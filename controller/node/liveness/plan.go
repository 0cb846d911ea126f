package liveness

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// rules are the numbers on which a verdict depends. Production uses the standard ones. The model in the tests drops one
// at a time.
type rules struct {
	interval time.Duration // between two questions to a share
	lateness time.Duration // by which a tick of the loop may be late; later, the count starts again
	patience int           // unanswered questions in a row that make a node silent
	// Nodes that fall silent within together of each other are judged after longWait of silence. A switch may be
	// restarting, and nodes seldom die at the same time. A node does not count here if only its share hangs.
	together, longWait time.Duration
	// A wrong verdict bars the next one for firstBar, then for twice as long each time, at most maxBar.
	firstBar, maxBar time.Duration
	// unheard: an address counts even if it has never answered this process.
	unheard bool
}

var standard = rules{
	interval: 500 * time.Millisecond, lateness: 250 * time.Millisecond, patience: 3,
	together: 3 * time.Second, longWait: 8 * time.Second,
	firstBar: 10 * time.Minute, maxBar: 24 * time.Hour,
}

// round is the result of the questions to one address since the last tick.
type round struct {
	heard    bool // it has answered this process at least once
	answered bool // since the last tick
}

// count is the leader's knowledge of nodes from its questions. It has no clock and sends no requests.
type count struct {
	rules    rules
	lastTick time.Time
	// epoch is raised by each late tick: findings from an earlier epoch prove nothing.
	epoch int
	nodes map[string]*tally
	// silences are when nodes last fell silent, including nodes that answer again. A second silence is compared with
	// them.
	silences map[string]time.Time
	bars     map[string]bar
}

// tally is the count of one node.
type tally struct {
	asked      bool // at the last tick the leader asked a question that counts
	unanswered int
	since      time.Time // when the leader asked the first of them
	tried      time.Time // the start of the last judgement
	// lived is the start of the last judgement that found the node alive, although it has answered no question since:
	// its share hangs. Zero: there was none.
	lived time.Time
}

func newCount(r rules) *count {
	return &count{rules: r, nodes: map[string]*tally{}, silences: map[string]time.Time{}, bars: map[string]bar{}}
}

// tick counts the answers since the last tick, and returns the names of the nodes to judge now. nodes has the rounds of
// the asked addresses, by node.
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

// counts reports whether the silence of an address means anything: a network policy may prevent it from ever answering.
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

// judgeAgain is how soon a silent node is judged again after a judgement without a result.
const judgeAgain = time.Second

// suspects are silent nodes that no brake holds, and that were not judged a moment ago. A node with a hanging share is
// judged in spite of a brake, because a brake holds only verdicts. If the node still lives, this releases the brake on
// others.
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

// isSilent reports whether too many questions in a row were not answered.
func (c *count) isSilent(node string) bool {
	n := c.nodes[node]
	return n != nil && n.unanswered >= c.rules.patience
}

// isBraked reports whether another node fell silent together with this one, and too little time has passed since. This
// excludes a node that has answered in some way since this one fell silent. Such a node has not lost its network: only
// its share hangs.
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

// begin marks that a node is being judged, and returns the epoch for mayFall.
func (c *count) begin(node string, now time.Time) int {
	if n := c.nodes[node]; n != nil {
		n.tried = now
	}
	return c.epoch
}

// mayFall reports whether a judgement that started in an epoch still counts. The loop must have been on time, and no
// answer may have come in between. Nor may the node be barred or braked: another node may have fallen silent since.
func (c *count) mayFall(node, bootID string, epoch int, now time.Time) bool {
	onTime := now.Sub(c.lastTick) <= c.rules.interval+c.rules.lateness
	return onTime && epoch == c.epoch && c.isSilent(node) && !c.isBraked(node, now) && !c.isBarred(node, bootID, now)
}

// lives starts a node's count again: some part of the node other than a share answered, after the last judgement
// started.
func (c *count) lives(node string) {
	if n := c.nodes[node]; n != nil {
		*n = tally{asked: false, tried: n.tried, lived: n.tried}
	}
}

// forgetOld drops silences that are too old to be compared with another one.
func (c *count) forgetOld(now time.Time) {
	maps.DeleteFunc(c.silences, func(_ string, at time.Time) bool { return now.Sub(at) > max(c.rules.together, c.rules.longWait) })
}

// bar prevents a node from being reported as down by questions, because its last verdict was wrong.
type bar struct {
	bootID string // of the node; in another boot the bar does not apply
	until  time.Time
	length time.Duration
}

// wrong records that a node answers again in the boot in which it was reported as down, and returns its bar.
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

// leaseState is the state of a node's Lease. Only daemons of an earlier release renew it.
type leaseState int

const (
	leaseNotHeld leaseState = iota
	leaseRenewed            // within types.NodeLeaseSilence
	leaseLate
	leaseUnread // it is held, and cannot be read
)

// finding is the result of investigating a silent node.
type finding struct {
	asked   bool // the node has an address for questions
	answers bool // it answered a new connection of the leader
	lease   leaseState
	nodes   int  // number in the cluster, including the leader's and the silent one
	apiRead bool // the API server answers a read that needs its quorum
	said    testimony
}

// testimony is the answer of the daemons of other nodes.
type testimony struct {
	reached bool   // one of these daemons reaches the node
	agrees  string // the node of a daemon that does not reach it; "": none answered
	earlier bool   // there was at least one daemon to ask, and all are of an earlier release
}

// outcome is the conclusion from a finding.
type outcome struct {
	lives, down bool
	witness     string // if down; "": none
	why         string // if neither lives nor down
}

// verdict decides on a silent node. The first line that applies counts:
//
//	it answers the leader or a witness in any way     it lives
//	it has no address for questions                   undecided
//	its lease (earlier release) was renewed           undecided: it is judged again when that is late
//	its lease is held and cannot be read              undecided: the leader itself is cut off
//	the cluster has no other node                     undecided
//	the API server does not answer                    undecided: leader and witness may be cut off together, and the
//	                                                  leader's write would arrive when they are connected again
//	a witness does not reach it either                down, with that witness
//	two nodes, or witnesses of an earlier release     down, without a witness
//	otherwise                                         undecided: no witness answered
func verdict(f finding) outcome {
	switch {
	case f.answers || f.said.reached:
		return outcome{lives: true}
	case !f.asked:
		return outcome{why: "the node has no address at which the leader can ask it"}
	case f.lease == leaseRenewed:
		return outcome{why: "the node has renewed its lease"}
	case f.lease == leaseUnread:
		return outcome{why: "the node's lease cannot be read"}
	case f.nodes < 2:
		return outcome{why: "the cluster has no other node"}
	case !f.apiRead:
		return outcome{why: "the API server does not answer"}
	case f.said.agrees != "":
		return outcome{down: true, witness: f.said.agrees}
	case f.nodes > 2 && !f.said.earlier:
		return outcome{why: "no daemon of another node has answered"}
	}
	return outcome{down: true}
}

// daemon is a daemon that can answer questions.
type daemon struct{ node, address string }

// users are the nodes with a connection to a node's shares or volumes.
type users struct{ mounts, replicas []string }

// byRelation sorts daemons. First come those on nodes that mount a share of the silent node, because they ask it all
// the time. Then come those with a replica of its volumes, to which its engines are connected. Then come all others, by
// name.
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
