package lostmodel

// rules are the explored rules: the zero value is the protocol, and each field weakens one rule.
type rules struct {
	noVerdict    bool // the leader lists a node that it reaches
	noRounds     bool // only the list counts
	dialsBefore  bool // the last round may start while the former server reaches clients
	staleCheck   bool // the last round may be long ago
	lastOnly     bool // harmless: an answer in an earlier round does not count
	noControl    bool // the successor does not ask whether it reaches other nodes
	noAge        bool // the former server may still reach clients
	noNote       bool // the former pod may be one that asks nothing
	anyEngine    bool // the list need not be about the previous engine
	noMark       bool // every process that has a list takes it
	noEntry      bool // the leader remembers the pod's report, not its own list
	forgetsAtTwo bool // the leader believes the answer of a later pod about an earlier pod's list

	earlierPod bool // the former pod asks nothing; an earlier pod, at the same engine, did
	// a deposed leader creates the successor's pod: its list is about an earlier engine
	lateLeader bool
}

func (r rules) initial() state {
	s := state{up: 2, holds: former, record: true, port: open, asks: true, check: unknown}
	if r.earlierPod || r.lateLeader {
		s.asks, s.port, s.age = false, noLimit, oldest
	}
	s.late = r.lateLeader
	return s
}

// successors calls next with every state that one event leads to.
func (r rules) successors(s state, next func(event string, to state)) {
	r.node(s, next)
	r.leader(s, next)
	r.process(s, next)
	r.clients(s, next)
}

// node has the events of the node and of the former server on it.
func (r rules) node(s state, next func(string, state)) {
	to := s
	to.age, to.check = older(s.age), older(s.check)
	if !s.cut {
		to.up = min(s.up+1, 2)
	}
	if s.port > 0 && s.port != noLimit {
		to.port--
	}
	next("time passes", to)

	to = s
	to.cut, to.up = !s.cut, 0
	next("the node's network fails, or works again", to)

	to = s
	to.blind = !s.blind
	next("the successor's network fails, or works again", to)

	if !s.booted {
		to = s
		to.booted, to.holds, to.removed, to.entry = true, nowhere, false, noEntry
		next("the node restarts", to)
	}
	if s.asks && !s.cut && !s.fenced {
		to = s
		to.port, to.age = open, 0
		next("the former server asks its engine", to)
	}
}

// leader has the events of the leader: it creates pods and remembers.
func (r rules) leader(s state, next func(string, state)) {
	if s.phase == absent && s.pods == 0 && (s.cut || r.noVerdict) {
		to := s
		to.verdict = true
		next("the leader and a witness do not reach the node", to)
	}
	if s.phase == absent && s.pods < 2 {
		to := s
		to.phase, to.pods, to.fenced, to.said, to.keeps, to.check = created, s.pods+1, true, false, false, unknown
		isNoted := s.asks || s.late || r.noNote
		to.hasList = s.pods == 0 && s.verdict && isNoted
		if to.hasList && !r.noEntry && !s.booted {
			to.entry = listed
		}
		next("the leader creates a pod", to)
	}
	if s.phase == serving && !s.said {
		to := s
		to.said = true
		if !s.booted {
			to.entry = r.learn(s)
		}
		next("the pod tells the leader", to)
	}
	if s.entry == dropped && !s.cut && !s.booted {
		to := s
		to.removed, to.entry = false, noEntry
		if s.holds == former {
			to.holds = nowhere
		}
		next("the leader restarts the client's pods", to)
	}
}

// learn is the leader's memory after an answer. A process that did not take the list itself reports that all in it may
// be gone.
func (r rules) learn(s state) entry {
	switch {
	case s.hasList && s.removed:
		return dropped
	case s.entry == listed && !s.hasList && !r.forgetsAtTwo:
		return dropped
	case s.entry == listed:
		return noEntry
	}
	return s.entry
}

// process has the events of the share manager.
func (r rules) process(s state, next func(string, state)) {
	if s.phase == created {
		if s.hasList && (!s.mark || r.noMark) {
			r.applies(s, next)
		}
		to := s
		to.phase, to.mark = decided, s.mark || s.hasList
		next("the share manager removes no record", to)
	}
	if s.phase == decided {
		to := s
		to.phase = serving
		next("the server starts", to)
	}
	if s.phase != absent {
		to := s
		to.phase, to.said = absent, false
		next("the pod ends", to)
		to = s
		to.phase, to.keeps, to.check = created, false, unknown
		next("the process starts again in the same pod", to)
	}
}

// applies has the events of a process with a list that no process has taken before.
func (r rules) applies(s state, next func(string, state)) {
	isMute := s.age != unknown && s.age >= wait || r.noAge
	isAbout := !s.late || r.anyEngine
	answers := !s.cut && !s.blind
	to := s
	to.keeps = s.keeps || answers
	to.check = unknown
	if (isMute || r.dialsBefore) && !answers && (!s.blind || r.noControl) {
		to.check = 0
	}
	next("a round of new connections", to)

	isChecked := s.check <= fresh || r.staleCheck && s.check != unknown
	hasAnswered := s.keeps && !r.lastOnly
	if !isMute || !isAbout || !r.noRounds && (hasAnswered || !isChecked) {
		return
	}
	to = s
	to.phase, to.mark, to.record, to.removed = decided, true, false, s.holds != nowhere || s.removed
	if s.up > fresh {
		to.wrong = "the node answered before the last round, and its record was removed"
	}
	if s.holds == successor {
		to.wrong = "the record was removed of a client that the successor had let in"
	}
	next("the share manager removes the record", to)
}

// clients has the events of the node's client, and of another client that wants its lock.
func (r rules) clients(s state, next func(string, state)) {
	if s.phase != serving {
		return
	}
	if s.holds == former && s.record && !s.cut && !s.granted {
		to := s
		to.holds = successor
		next("the client claims its lock", to)
	}
	if s.holds == nowhere && !s.cut && !s.granted {
		to := s
		to.holds, to.record = successor, true
		next("the client locks", to)
	}
	if !s.record && s.holds != successor {
		to := s
		to.granted = true
		next("another client locks", to)
	}
}
