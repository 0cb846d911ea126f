package machine

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Order is what a process of a machine is told to do from outside, by the content of its file Process.Orders.
type Order string

const (
	// OrderRun is the order of a process without a file.
	OrderRun Order = "run"
	// OrderFreeze has the process stand still (SIGSTOP).
	OrderFreeze Order = "freeze"
	// OrderStop ends the process at once (SIGKILL), and keeps it from being started.
	OrderStop Order = "stop"
)

// Orders are all there are.
var Orders = []Order{OrderRun, OrderFreeze, OrderStop}

// ordersInterval is the time between two looks at a file with orders.
const ordersInterval = 100 * time.Millisecond

// readOrder returns OrderRun for a file that is not there or has another content.
func readOrder(file string) Order {
	raw, err := os.ReadFile(file)
	if order := Order(strings.TrimSpace(string(raw))); err == nil && (order == OrderFreeze || order == OrderStop) {
		return order
	}
	return OrderRun
}

// obey has a process do what its file says. It never ends.
func (s *supervisor) obey(p Process) {
	was := OrderRun
	for {
		order := readOrder(p.Orders)
		switch {
		case order == OrderStop:
			s.signal(p, unix.SIGKILL)
		case order == OrderFreeze: // again each time: it may have started meanwhile
			s.signal(p, unix.SIGSTOP)
		case was == OrderFreeze:
			s.signal(p, unix.SIGCONT)
		}
		was = order
		time.Sleep(ordersInterval)
	}
}

// signal sends a signal to a process of the machine, if it runs. The lock is held while a process that ended is collected, and before that its id
// is given to no other.
func (s *supervisor) signal(p Process, signal unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, running := range s.running {
		if running.Name == p.Name {
			_ = unix.Kill(pid, signal) // one that has ended meanwhile needs none
		}
	}
}

// awaitRun returns when the process is not told to be stopped.
func awaitRun(p Process) {
	for p.Orders != "" && readOrder(p.Orders) == OrderStop {
		time.Sleep(ordersInterval)
	}
}
