package partitionmodel

import "fmt"

// Times in units. The real times are 4, 1 and 5 s. It matters only that wait is the sum of the others, and smaller
// numbers are searched in a second.
const (
	open     = 2 // how long a "yes" opens the port
	late     = 1 // the most by which the kernel may close it late
	wait     = 3 // the age at which a successor gives away what clients hold
	oldest   = wait
	unknown  = 15
	noLimit  = 14
	members  = 2
	everyone = set(1<<members - 1)
)

// set is a set of members, one bit for each.
type set uint8

func (s set) has(m int) bool { return s&(1<<m) != 0 }

// member is one replica.
type member struct {
	heard  uint8 // age of the old engine's last question; in memory, reported to the successor
	fenced bool  // it has admitted the successor's generation
	cut    bool  // the old engine's connection has ended
}

// question is the question that is under way.
type question struct {
	age     uint8 // unknown: no question is under way
	asked   set
	heard   set
	replied set
	limited bool // the port closes automatically
}

// state is one moment. It is comparable.
type state struct {
	m [members]member
	q question

	serving, leaving set   // of the old engine
	port             uint8 // how long the old server's port stays open; noLimit is one of its values
	// confirmed is the age of the question with a "yes" that has reached the share manager and is not yet acted upon.
	// unknown means that there is none.
	confirmed    uint8
	confirmedFor uint8 // since that "yes" arrived; only for rules that count from there
	limited      bool  // the old server closes its port automatically

	object     set   // the members that the API object lists
	raised     bool  // the object has the successor's generation
	start      set   // the members that the successor read at that time
	sinceFence uint8 // only for rules that count from there, like silence
	silence    uint8 // since the old server last answered the leader
	granted    bool  // the successor has given away what clients held
}

func initial() state {
	s := state{serving: everyone, object: everyone, limited: true, confirmed: unknown, sinceFence: unknown}
	for i := range s.m {
		s.m[i] = member{heard: unknown}
	}
	s.q.age = unknown
	return s
}

// violation describes the error in a state, or returns "".
func (s *state) violation() string {
	if s.granted && s.port > 0 {
		return "the successor has given away what clients hold at a server whose port is open"
	}
	return ""
}

func (s *state) String() string { return fmt.Sprintf("%+v", *s) }

// older returns an age one unit of time later.
func older(age uint8) uint8 {
	if age == unknown {
		return unknown
	}
	return min(age+1, oldest)
}
