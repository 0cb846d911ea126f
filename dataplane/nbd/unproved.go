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

// unprovedConns holds the connections that have proved nothing yet. If there is one too many, it cuts the oldest
// connection of the address that has the most. So a flood from one address displaces its own connections and no others.
// Consider a handshake from the same address, or in a flood from more addresses than the limit. It survives if
// it proves its secret before as many new connections have come as the limit allows. The proof takes two round trips
// (three over TLS).
type unprovedConns struct {
	limit int

	mu      sync.Mutex
	arrived uint64                     // guarded by mu
	waiting map[string][]*unprovedConn // guarded by mu; by address, in the order of arrival; no empty lists
	n       int                        // guarded by mu; connections
}

// unprovedConn is one connection that has not proved a secret.
type unprovedConn struct {
	from    string
	arrival uint64
	cut     func()
}

// enter adds a connection, and cuts one connection if there are too many. It reports whether it has cut one.
func (l *unprovedConns) enter(g *unprovedConn) (cut bool) {
	l.mu.Lock()
	l.arrived++
	g.arrival = l.arrived
	if l.waiting == nil {
		l.waiting = map[string][]*unprovedConn{}
	}
	l.waiting[g.from] = append(l.waiting[g.from], g)
	l.n++
	var evicted *unprovedConn
	if l.n > l.limit {
		evicted = l.oldestLocked()
		l.removeLocked(evicted)
	}
	l.mu.Unlock()
	if evicted == nil {
		return false
	}
	evicted.cut()
	return true
}

// leave removes a connection that has proved its secret or has ended. It may be called repeatedly, also for one that
// was cut.
func (l *unprovedConns) leave(g *unprovedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(g)
}

func (l *unprovedConns) removeLocked(g *unprovedConn) {
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

// oldestLocked returns the oldest connection of the address with the most connections. Among several such addresses it
// takes the connection that came first.
func (l *unprovedConns) oldestLocked() (oldest *unprovedConn) {
	most := 0
	for _, list := range l.waiting {
		if len(list) > most || len(list) == most && list[0].arrival < oldest.arrival {
			most, oldest = len(list), list[0]
		}
	}
	return oldest
}

// hostOf returns the key by which connections are counted: the host of a network address. Connections on networks
// without hosts are counted together.
func hostOf(a net.Addr) string {
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
