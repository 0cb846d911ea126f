package lostmodel

// Times in units. The real values are 4, 5 and 1 s. It only matters that wait is the sum of open and a margin.
const (
	open    = 2 // how long a question opens the former server's port
	wait    = 3 // the age of the last question that proves that the port is closed
	fresh   = 1 // how old the last round of new connections may be when a record is removed
	oldest  = wait
	unknown = 15
	noLimit = 14
)

// server is where the client's pods believe that they hold a lock.
type server uint8

const (
	nowhere server = iota
	former
	successor
)

// entry is the leader's memory about the client.
type entry uint8

const (
	noEntry entry = iota
	// a pod was created with the client in its list, and no pod has reported yet
	listed
	dropped // the record is gone, or this is not known
)

// phase of the successor's process.
type phase uint8

const (
	absent  phase = iota
	created       // the process runs, no server does
	decided       // the list was applied, or refused
	serving
)

// state is the state at one moment. It is comparable.
type state struct {
	cut    bool  // the node reaches only the former server
	up     uint8 // how long it has reached the others
	booted bool  // it has restarted: its pods have no earlier state
	holds  server

	// port is how long the former server's port stays open; noLimit is one of its values.
	port uint8
	// age is the age of its last question, as a member remembers it; unknown: none is known.
	age    uint8
	asks   bool
	fenced bool // the successor's engine was admitted

	verdict bool // the leader and a witness did not reach the node
	phase   phase
	hasList bool  // of the successor's pod
	late    bool  // the list is about an engine before the former server's
	keeps   bool  // the node has answered this process
	blind   bool  // the successor's pod reaches nothing
	check   uint8 // how long ago the last round started; unknown: no round that counts
	mark    bool  // on the volume: the list was taken
	pods    uint8 // number of created pods

	record  bool // of the client
	removed bool // the record was removed, and the client's pods have not been restarted since
	granted bool // another client has the lock
	entry   entry
	said    bool // the pod that serves has reported to the leader

	wrong string // the violation that an event found
}

// violation says which invariant a state breaks; "": none.
func (s *state) violation() string {
	switch {
	case s.wrong != "":
		return s.wrong
	case s.granted && s.holds == former && s.port > 0:
		return "another client has the lock, and the client uses it at the former server"
	case s.granted && s.holds == successor:
		return "the successor has granted one lock twice"
	case s.removed && !s.booted && s.said && s.entry == noEntry:
		return "the record was removed, and the leader does not know"
	}
	return ""
}

func older(age uint8) uint8 {
	if age == unknown {
		return unknown
	}
	return min(age+1, oldest)
}
