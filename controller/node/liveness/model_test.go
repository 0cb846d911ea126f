package liveness

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The model runs the decisions of this package in a cluster with a clock, a network and processes that are functions of
// time. Each scenario has failures of the cluster. Without any one of the rules, at least one scenario reports a node
// as down that lives.

// span is a time from the start of a run, in which something holds.
type span struct{ from, to time.Duration }

func within(spans []span, at time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.from <= at && at < s.to })
}

// scenario is a cluster with the leader, a witness and nodes x and y, which serve shares, and the failures in it.
type scenario struct {
	name    string
	serving []string // nodes that serve shares
	twos    bool     // leader and x are the whole cluster
	noYes   []string // nodes that never answer a question, nor any connection: a network policy
	dead    map[string]time.Duration
	// cut are the times in which a pair of places cannot reach each other, as "leader-x"; "x" alone is cut off from
	// all.
	cut     map[string][]span
	starved map[string]span // in which the processes of a node do not run; its kernel does
	paused  []span          // of the leader
	lasts   time.Duration
	down    []string // the verdicts that are right
	wrong   int      // verdicts on nodes that live that the rules allow
}

func (s *scenario) links(a, b string, at time.Duration) bool {
	return !within(s.cut[a+"-"+b], at) && !within(s.cut[a], at) && !within(s.cut[b], at)
}

func (s *scenario) isAlive(node string, at time.Duration) bool {
	died, isDead := s.dead[node]
	return !isDead || at < died
}

// accepts reports whether the kernel of a node answers a new connection from a place.
func (s *scenario) accepts(from, node string, at time.Duration) bool {
	return s.isAlive(node, at) && s.links(from, node, at) && !slices.Contains(s.noYes, node)
}

// arrives is when a question's answer arrives: TCP sends lost packets again, after 0.2 s, 0.4 s and so on.
func (s *scenario) arrives(node string, asked time.Duration) (time.Duration, bool) {
	again := 200 * time.Millisecond
	for at := asked; at < s.lasts; at, again = at+again, 2*again {
		if s.accepts("leader", node, at) {
			if starved := s.starved[node]; starved.from <= at && at < starved.to {
				at = starved.to
			}
			return at + time.Millisecond, true
		}
	}
	return 0, false
}

// leftOut says which rules do not hold in a run.
type leftOut struct {
	change     func(*rules)
	noDials    bool // new connections are not tried
	oneDial    bool // they are tried once
	noWitness  bool // the leader decides alone
	noAPIRead  bool // the leader does not check whether the API server answers
	noBootIDs  bool // verdicts that proved wrong are not recorded
	noFinalAsk bool // answers during the judgement are ignored
}

type fall struct {
	node string
	at   time.Duration
}

// run returns the verdicts of a scenario.
func run(s *scenario, out leftOut) []fall {
	r := standard
	if out.change != nil {
		out.change(&r)
	}
	m := &model{scenario: s, out: out, count: newCount(r), answers: map[string][]time.Duration{}, down: map[string]bool{}}
	previous := time.Duration(0)
	for next := time.Duration(0); next < s.lasts; {
		at := m.resumes(next)
		m.finish(at)
		m.tick(previous, at)
		previous = at
		next += r.interval
		if next <= at { // a ticker drops missed ticks
			next = at - at%r.interval + r.interval
		}
	}
	return m.verdicts
}

type model struct {
	*scenario
	out      leftOut
	count    *count
	answers  map[string][]time.Duration // when they arrive, by node
	pending  []judgement
	down     map[string]bool
	verdicts []fall
}

type judgement struct {
	node        string
	began, ends time.Duration
	epoch       int
	out         outcome
}

// resumes is when the leader does the work that it planned for a given time.
func (m *model) resumes(at time.Duration) time.Duration {
	for _, p := range m.paused {
		if p.from <= at && at < p.to {
			return p.to
		}
	}
	return at
}

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func (m *model) tick(previous, now time.Duration) {
	nodes := map[string][]round{}
	for _, node := range m.serving {
		heard := slices.ContainsFunc(m.answers[node], func(at time.Duration) bool { return at <= now })
		fresh := slices.ContainsFunc(m.answers[node], func(at time.Duration) bool { return previous < at && at <= now })
		nodes[node] = []round{{heard: heard, answered: fresh}}
	}
	for _, node := range m.count.tick(start.Add(now), nodes) {
		if !m.down[node] {
			m.judge(node, now)
		}
	}
	for _, node := range m.serving {
		if at, ok := m.arrives(node, now); ok {
			m.answers[node] = append(m.answers[node], at)
		}
		if m.down[node] && m.accepts("leader", node, now) {
			m.down[node] = false
			if !m.out.noBootIDs {
				m.count.wrong(node, "boot", start.Add(now))
			}
		}
	}
}

// dials reports whether the leader learns that a node accepts. If the leader is paused at that moment, its time is over
// when it resumes.
func (m *model) dials(node string, at time.Duration) bool {
	return m.accepts("leader", node, at) && m.resumes(at+time.Millisecond) == at+time.Millisecond
}

// judge determines the view of the leader and of the witness at this moment.
func (m *model) judge(node string, now time.Duration) {
	j := judgement{node: node, began: now, ends: now + 500*time.Millisecond, epoch: m.count.begin(node, start.Add(now))}
	f := finding{asked: true, nodes: 3, apiRead: m.out.noAPIRead || m.links("leader", "api", now)}
	f.answers = !m.out.noDials && (m.dials(node, now) || !m.out.oneDial && m.dials(node, m.resumes(now+250*time.Millisecond)))
	if m.twos || m.out.noWitness {
		f.nodes = 2
	} else if m.links("leader", "witness", now) {
		f.said.reached = !m.out.noDials && m.accepts("witness", node, now)
		if !f.said.reached {
			f.said.agrees = "witness"
		}
	}
	j.ends, j.out = m.resumes(j.ends), verdict(f)
	m.pending = append(m.pending, j)
}

// finish completes the judgements that are over before a given time.
func (m *model) finish(before time.Duration) {
	rest := m.pending[:0]
	for _, j := range m.pending {
		if j.ends > before {
			rest = append(rest, j)
			continue
		}
		m.conclude(j)
	}
	m.pending = rest
}

func (m *model) conclude(j judgement) {
	isAnswered := slices.ContainsFunc(m.answers[j.node], func(at time.Duration) bool { return j.began < at && at <= j.ends })
	switch {
	case j.out.lives, isAnswered && !m.out.noFinalAsk:
		m.count.lives(j.node)
		// a new connection
		m.answers[j.node] = slices.DeleteFunc(m.answers[j.node], func(at time.Duration) bool { return at > j.ends })
	case j.out.down && !m.down[j.node] && m.count.mayFall(j.node, "boot", j.epoch, start.Add(j.ends)):
		m.down[j.node] = true
		m.verdicts = append(m.verdicts, fall{j.node, j.ends})
	}
}

// of splits verdicts into those on dead nodes and those on nodes that lived.
func (s *scenario) of(verdicts []fall) (right []string, wrong int) {
	for _, v := range verdicts {
		if s.isAlive(v.node, v.at) {
			wrong++
		} else {
			right = append(right, v.node)
		}
	}
	slices.Sort(right)
	return right, wrong
}

const (
	sec   = time.Second
	hangs = "a share of a node hangs, and another node dies"
	moved = "the leader's machine is moved: it stands still for 1.1 s, and its network is back 1.7 s later"
)

func scenarios() []scenario {
	x, both := []string{"x"}, []string{"x", "y"}
	seconds := func(from, to float64) []span {
		return []span{{time.Duration(from * float64(sec)), time.Duration(to * float64(sec))}}
	}
	var flaps []span
	for at := 10 * sec; at < 30*time.Minute; at += 25 * sec {
		flaps = append(flaps, span{at, at + 3*sec})
	}
	return []scenario{
		{name: "a node dies", serving: x, dead: map[string]time.Duration{"x": 10 * sec}, down: x},
		{name: "a node dies, the other of two", twos: true, serving: x, dead: map[string]time.Duration{"x": 10 * sec}, down: x},
		{name: "two nodes die", serving: both, dead: map[string]time.Duration{"x": 10 * sec, "y": 11 * sec}, down: both},
		{name: "a node's link is away for 1.3 s", serving: x, cut: map[string][]span{"x": seconds(10.1, 11.4)}},
		{
			name: moved, twos: true, serving: x,
			paused: seconds(10.01, 11.1), cut: map[string][]span{"leader-x": seconds(9.99, 12.8)},
		},
		{
			name: "the leader stops and goes while the node's processes are starved", twos: true, serving: x,
			starved: map[string]span{"x": {10 * sec, 50 * sec}}, paused: stopAndGo(12*sec, 50*sec),
		},
		{name: "the leader is cut off from the pods' network", serving: x, cut: map[string][]span{"leader-x": seconds(10, 60), "leader-witness": seconds(10, 60)}},
		{name: "the leader of two nodes is cut off from all", twos: true, serving: x, cut: map[string][]span{"leader": seconds(10, 60)}},
		{name: "leader and witness are cut off from all others for 5 s", serving: x, cut: map[string][]span{
			"leader-x": seconds(10, 15), "witness-x": seconds(10, 15), "leader-api": seconds(10, 15),
		}},
		{name: "the leader is cut off from one node", serving: x, cut: map[string][]span{"leader-x": seconds(10, 60)}},
		{name: "a switch is away for 3 s", serving: both, cut: map[string][]span{"x": seconds(10, 13), "y": seconds(10, 13)}},
		{name: "a link flaps: 3 s away, 22 s there, for half an hour", serving: x, cut: map[string][]span{"x": flaps}, lasts: 30 * time.Minute, wrong: 2},
		{name: "a node's processes are starved for minutes", serving: x, starved: map[string]span{"x": {10 * sec, 5 * time.Minute}}, lasts: 6 * time.Minute},
		{
			name: hangs, serving: both, starved: map[string]span{"x": {10 * sec, time.Hour}}, dead: map[string]time.Duration{"y": 30 * sec}, down: []string{"y"},
		},
		{
			name: "a share hangs, and a switch is away for 3 s", serving: both, starved: map[string]span{"x": {10 * sec, time.Hour}},
			cut: map[string][]span{"x": seconds(30, 33), "y": seconds(30, 33)},
		},
		{name: "a network policy lets nobody ask", serving: x, noYes: x},
	}
}

// stopAndGo pauses the leader for 0.7 s every 3 s, from half a millisecond after a tick.
func stopAndGo(from, to time.Duration) (spans []span) {
	for at := from + 500*time.Microsecond; at < to; at += 3 * sec {
		spans = append(spans, span{at, at + 700*time.Millisecond})
	}
	return spans
}

func named(t *testing.T, name string) *scenario {
	t.Helper()
	for _, s := range scenarios() {
		if s.name == name {
			if s.lasts == 0 {
				s.lasts = time.Minute
			}
			return &s
		}
	}
	require.Fail(t, "no such scenario", name)
	return nil
}

func TestModelOfTheRules(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			s := named(t, s.name)
			right, wrong := s.of(run(s, leftOut{}))
			assert.Equal(t, s.down, right)
			assert.Equal(t, s.wrong, wrong)
		})
	}
}

// The time until a verdict is exactly the sum of the rules: three questions, the phase of the first, and the judgement.
func TestModelOfTheTimeUntilAVerdict(t *testing.T) {
	for name, most := range map[string]time.Duration{
		"a node dies": 2500 * time.Millisecond, "a node dies, the other of two": 2500 * time.Millisecond, "two nodes die": 9500 * time.Millisecond,
		hangs: 5 * time.Second,
	} {
		for phase := time.Duration(0); phase < 500*time.Millisecond; phase += 50 * time.Millisecond {
			s := named(t, name)
			for node := range s.dead {
				s.dead[node] += phase
			}
			for _, v := range run(s, leftOut{}) {
				assert.LessOrEqual(t, v.at-s.dead[v.node], most+10*time.Millisecond, "%s, phase %v", name, phase)
			}
		}
	}
}

func TestModelNeedsEachRule(t *testing.T) {
	for name, c := range map[string]struct {
		out      leftOut
		scenario string
	}{
		"three questions":          {leftOut{change: func(r *rules) { r.patience = 1 }}, "a node's link is away for 1.3 s"},
		"the loop is on time":      {leftOut{change: func(r *rules) { r.lateness = time.Hour }}, moved},
		"what came meanwhile":      {leftOut{noFinalAsk: true}, moved},
		"a second connection":      {leftOut{oneDial: true}, "the leader stops and goes while the node's processes are starved"},
		"an answer to this leader": {leftOut{change: func(r *rules) { r.unheard = true }}, "a network policy lets nobody ask"},
		"new connections":          {leftOut{noDials: true}, "a node's processes are starved for minutes"},
		"a witness":                {leftOut{noWitness: true}, "the leader is cut off from the pods' network"},
		"a witness's connections":  {leftOut{noWitness: true}, "the leader is cut off from one node"},
		"the API server's answer":  {leftOut{noAPIRead: true}, "the leader of two nodes is cut off from all"},
		"the same with a witness":  {leftOut{noAPIRead: true}, "leader and witness are cut off from all others for 5 s"},
		"two silent nodes wait":    {leftOut{change: func(r *rules) { r.together = 0 }}, "a switch is away for 3 s"},
		"the wait is long enough":  {leftOut{change: func(r *rules) { r.longWait = 2 * sec }}, "a switch is away for 3 s"},
		"a bar after an error":     {leftOut{noBootIDs: true}, "a link flaps: 3 s away, 22 s there, for half an hour"},
		"a bar that doubles":       {leftOut{change: func(r *rules) { r.maxBar = r.firstBar }}, "a link flaps: 3 s away, 22 s there, for half an hour"},
	} {
		t.Run(name, func(t *testing.T) {
			s := named(t, c.scenario)
			_, wrong := s.of(run(s, c.out))
			assert.Greater(t, wrong, s.wrong, "without this rule no node that lives is called down")
		})
	}
}
