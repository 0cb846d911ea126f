package nbd

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// maxUnproved is how many connections of one server may be in a handshake without a proved secret. Each costs a
// goroutine, its read buffer, and the one option that it is sending: at most 90 KiB.
const maxUnproved = 256

// lobby holds the connections that have proved nothing yet. If there is one too many, the lobby cuts the oldest
// connection of the address that has the most. So a flood from one address displaces its own connections and no others.
// Consider a handshake from the same address, or in a flood from more addresses than there are places. It survives if
// it proves its secret before as many newcomers have come as there are places. The proof takes two round trips (three
// over TLS).
type lobby struct {
	places int

	mu      sync.Mutex
	arrived uint64              // guarded by mu
	waiting map[string][]*guest // guarded by mu; by address, in the order of arrival; no empty lists
	n       int                 // guarded by mu; guests
}

// guest is one connection in a lobby.
type guest struct {
	from    string
	arrival uint64
	cut     func()
}

// enter adds a newcomer, and cuts one guest if there are too many. It reports whether it has cut one.
func (l *lobby) enter(g *guest) (cut bool) {
	l.mu.Lock()
	l.arrived++
	g.arrival = l.arrived
	if l.waiting == nil {
		l.waiting = map[string][]*guest{}
	}
	l.waiting[g.from] = append(l.waiting[g.from], g)
	l.n++
	var victim *guest
	if l.n > l.places {
		victim = l.victimLocked()
		l.removeLocked(victim)
	}
	l.mu.Unlock()
	if victim == nil {
		return false
	}
	victim.cut()
	return true
}

// leave removes a guest that has proved itself or has left. It may be called repeatedly, also for a guest that was cut.
func (l *lobby) leave(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(g)
}

func (l *lobby) removeLocked(g *guest) {
	list := l.waiting[g.from]
	i := slices.Index(list, g)
	if i < 0 {
		return
	}
	l.n--
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(l.waiting, g.from)
		return
	}
	l.waiting[g.from] = list
}

// victimLocked returns the oldest guest of the address with the most guests. Among several such addresses it takes the
// guest that came first.
func (l *lobby) victimLocked() (victim *guest) {
	most := 0
	for _, list := range l.waiting {
		if len(list) > most || len(list) == most && list[0].arrival < victim.arrival {
			most, victim = len(list), list[0]
		}
	}
	return victim
}

// lobbyAddress returns the key by which guests are counted: the host of a network address. Guests on networks without
// hosts are counted together.
func lobbyAddress(a net.Addr) string {
	if host, _, err := net.SplitHostPort(a.String()); err == nil {
		return host
	}
	return a.Network()
}

// sparseLog logs messages that peers can cause at will. It logs each message once in a while, with the number of
// messages left out since.
type sparseLog struct {
	every time.Duration
	now   func() time.Time

	mu    sync.Mutex
	lines map[string]*sparseLine // guarded by mu; by message, of which there are few
}

type sparseLine struct {
	next    time.Time
	leftOut int
}

// sparseEvery is the pause between two lines with the same message.
const sparseEvery = 10 * time.Second

func newSparseLog() *sparseLog {
	return &sparseLog{every: sparseEvery, now: time.Now, lines: map[string]*sparseLine{}}
}

// log logs a message, which must be a constant.
func (l *sparseLog) log(e *logrus.Entry, level logrus.Level, message string) {
	if !e.Logger.IsLevelEnabled(level) {
		return
	}
	l.mu.Lock()
	line := l.lines[message]
	if line == nil {
		line = &sparseLine{}
		l.lines[message] = line
	}
	now := l.now()
	if now.Before(line.next) {
		line.leftOut++
		l.mu.Unlock()
		return
	}
	if line.leftOut > 0 {
		e = e.WithField("leftOut", line.leftOut)
	}
	line.next, line.leftOut = now.Add(l.every), 0
	l.mu.Unlock()
	e.Log(level, message)
}
