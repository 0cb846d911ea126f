package partitionmodel

// rules is the protocol to explore: the zero value is the real protocol, and each field weakens one rule.
type rules struct {
	fromAnswer     bool // the port's time is counted from the answer
	fromRenewal    bool // the port's time is counted from the moment when the share manager acts on the answer
	oneYes         bool // one member's answer is a "yes"
	leadersSilence bool // the successor grants when the old server was silent to the leader for wait
	restartIsAge   bool // a restarted member reports the time since its restart as the age
	waitLess       bool // the successor grants after open, not after wait
	yesWhileLeaves bool // "yes" without a failed member, although the object still lists it
	keepsAge       bool // a replica that becomes a member again remembers questions from its earlier membership
	unlimitedAge   bool // a member remembers a question of a server with a port that is open without limit
	opensUntold    bool // a server opens its port without limit before the members know that it has no limit
	fenceIsAge     bool // no age is known: the successor grants wait after the last fence

	oldMember bool // the second member is of a release that does not know the question
	oldServer bool // the old server is of a release that asks nothing, and its port is open
}

// successors calls next with every state that one event leads to.
func (r rules) successors(s state, next func(event string, to state)) {
	r.passes(s, next)
	r.asking(s, next)
	r.acting(s, next)
	r.membership(s, next)
	r.succession(s, next)
}

// passes lets time pass. During that time nothing else needs to happen.
func (r rules) passes(s state, next func(string, state)) {
	for i := range s.m {
		s.m[i].heard = older(s.m[i].heard)
	}
	s.q.age, s.confirmed = older(s.q.age), older(s.confirmed)
	if r.fromAnswer && s.confirmed != unknown {
		s.confirmedFor = min(s.confirmedFor+1, oldest)
	}
	if r.fenceIsAge {
		s.sinceFence = older(s.sinceFence)
	}
	if r.leadersSilence {
		s.silence = older(s.silence)
	}
	if s.port > 0 && s.port != noLimit {
		s.port--
	}
	next("time passes", s)
}

// asking covers a question on its way to the members and back. The old engine drops an earlier question.
func (r rules) asking(s state, next func(string, state)) {
	if s.silence > 0 && r.leadersSilence && !s.raised {
		to := s
		to.silence = 0
		next("the leader hears the old server", to)
	}
	if r.oldServer {
		return
	}
	if s.leaving == 0 || r.yesWhileLeaves {
		to := s
		to.q = question{asked: s.serving, limited: s.limited}
		next("the old server asks", to)
	}
	if s.q.age == unknown {
		return
	}
	for i := range s.m {
		to := s
		switch {
		case !s.q.asked.has(i) || s.m[i].cut:
		case !s.q.heard.has(i):
			to.q.heard |= 1 << i
			if r.knows(i) {
				to.m[i].heard = unknown
				if s.q.limited || r.unlimitedAge {
					to.m[i].heard = 0
				}
			}
			next("a member hears the question", to)
		case !s.q.replied.has(i):
			to.q.replied |= 1 << i
			next("a member's answer arrives", to)
		}
	}
}

func (r rules) knows(member int) bool { return member == 0 || !r.oldMember }

// acting covers the share manager's reaction to an answer. A "yes" requires that the members have not changed since the
// question.
func (r rules) acting(s state, next func(string, state)) {
	complete := s.q.replied == s.q.asked || r.oneYes && s.q.replied != 0
	if s.q.age != unknown && complete && s.q.asked == s.serving && (s.leaving == 0 || r.yesWhileLeaves) {
		old := r.oldMember && s.q.asked.has(1)
		to := s
		to.q = question{age: unknown}
		switch {
		case old && (!s.q.limited || r.opensUntold):
			to.limited, to.port = false, noLimit
			next("no member contradicts, one does not know: the port opens without limit", to)
		case old:
			to.limited = false
			next("one member does not know: the server tells that it has no limit, and is closed until they have heard", to)
		case !s.q.limited:
			to.limited, to.port = true, min(s.port, open+late)
			next("all members know: the port has a limit from now on", to)
		default:
			to.confirmed, to.confirmedFor = s.q.age, 0
			next("yes", to)
		}
	}
	if s.confirmed != unknown {
		to := s
		age := s.confirmed
		switch {
		case r.fromRenewal:
			age = 0
		case r.fromAnswer:
			age = s.confirmedFor
		}
		to.confirmed, to.confirmedFor = unknown, 0
		if left := open + late - min(open+late, age); left > to.port {
			to.port = left
		}
		next("the port's time is renewed", to)
	}
}

// membership covers members that leave and come back. After the generation was raised, the object refuses the epochs of
// the old engine.
func (r rules) membership(s state, next func(string, state)) {
	for i := range s.m {
		to := s
		switch {
		case s.serving.has(i) && s.serving != 1<<i:
			to.serving &^= 1 << i
			to.leaving |= 1 << i
			to.m[i].cut = true
			next("the old engine gives a member up", to)
		case !s.serving.has(i) && !s.leaving.has(i) && !s.m[i].fenced:
			to.serving |= 1 << i
			to.m[i].cut = false
			if !r.keepsAge {
				to.m[i].heard = unknown
			}
			next("a replica has everything, and is asked as a member from now on", to)
		}
		if !s.m[i].fenced && !r.oldServer {
			to = s
			to.m[i].cut, to.m[i].heard = true, unknown
			if r.restartIsAge {
				to.m[i].heard = oldest
			}
			next("a member's process is restarted", to)
		}
	}
	if s.object != s.serving && !s.raised {
		to := s
		to.object = s.serving
		next("the object records the members", to)
	}
	if s.leaving != 0 && s.object == s.serving {
		to := s
		to.leaving = 0
		next("the old engine hears that the members are recorded", to)
	}
}

// succession covers the start of another engine, at any time and for any reason, and of its server.
func (r rules) succession(s state, next func(string, state)) {
	if !s.raised {
		to := s
		to.raised, to.start = true, s.object
		next("the object's generation is raised", to)
		return
	}
	for i := range s.m {
		if s.start.has(i) && !s.m[i].fenced {
			to := s
			to.m[i].fenced, to.m[i].cut, to.sinceFence = true, true, 0
			next("a member admits the successor", to)
		}
	}
	if !s.granted && r.mayGrant(s) {
		to := s
		to.granted = true
		next("the successor gives away what clients held", to)
	}
}

func (r rules) mayGrant(s state) bool {
	if s.sinceFence == unknown {
		return false // not yet started
	}
	if r.leadersSilence {
		return s.silence >= wait
	}
	age := uint8(wait)
	if r.waitLess {
		age = open
	}
	known := false
	for i := range s.m {
		if s.m[i].fenced && s.m[i].heard != unknown {
			known = true
			if s.m[i].heard >= age {
				return true
			}
		}
	}
	return !known && r.fenceIsAge && s.sinceFence >= wait
}
