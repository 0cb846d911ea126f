package machine

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Order is an order from outside to a process of a machine. It is the content of the file Process.Orders.
type Order string

const (
	// OrderRun is the order of a process without a file.
	OrderRun Order = "run"
	// OrderFreeze suspends the process (SIGSTOP).
	OrderFreeze Order = "freeze"
	// OrderStop kills the process immediately (SIGKILL), and prevents its restart.
	OrderStop Order = "stop"
)

// Orders are all possible orders.
var Orders = []Order{OrderRun, OrderFreeze, OrderStop}

// ordersInterval is the time between two reads of a file with orders.
const ordersInterval = 100 * time.Millisecond

// readOrder returns OrderRun for a file that does not exist or has other content.
func readOrder(file string) Order {
	raw, err := os.ReadFile(file)
	if order := Order(strings.TrimSpace(string(raw))); err == nil && (order == OrderFreeze || order == OrderStop) {
		return order
	}
	return OrderRun
}

// obey makes a process follow the orders in its file. It never returns.
func (s *supervisor) obey(p Process) {
	was := OrderRun
	for {
		order := readOrder(p.Orders)
		switch {
		case order == OrderStop:
			s.signal(p, unix.SIGKILL)
		case order == OrderFreeze: // again each time: the process may have been started in the meantime
			s.signal(p, unix.SIGSTOP)
		case was == OrderFreeze:
			s.signal(p, unix.SIGCONT)
		}
		was = order
		time.Sleep(ordersInterval)
	}
}

// signal sends a signal to a process of the machine, if it runs. The lock is also held while a process that has exited
// is reaped. Until then, its id cannot belong to another process.
func (s *supervisor) signal(p Process, signal unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, running := range s.running {
		if running.Name == p.Name {
			_ = unix.Kill(pid, signal) // a process that has exited in the meantime does not need it
		}
	}
}

// awaitRun waits until no order stops the process.
func awaitRun(p Process) {
	for p.Orders != "" && readOrder(p.Orders) == OrderStop {
		time.Sleep(ordersInterval)
	}
}
