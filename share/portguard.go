package share

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

// Answer is the instance manager's answer about the engine that serves a device.
type Answer struct {
	Verdict    firewall.Verdict
	Generation int64 // of the engine
	Before     Predecessor
}

// Predecessor is the engine that served the volume before. The zero value means that it is not known.
type Predecessor struct {
	Generation int64
	// Age is how long ago the share manager at that engine last asked whether the engine was in force.
	Age time.Duration
}

// confirmation is an answer that confirms the engine, and when it came.
type confirmation struct {
	Answer
	at time.Duration
}

// portGuard is a firewall.PortGuard, or its fake in tests.
type portGuard interface {
	Run(ctx context.Context) error
	IsClosed() bool
	Remove() error
}

// guard keeps the NFS port closed while the volume's engine is not in force. The zero value guards nothing.
type guard struct {
	port   portGuard           // nil: the kernel or the instance manager does not support it
	failed chan error          // receives the reason when clients can no longer be served
	first  <-chan confirmation // receives the first answer that confirms the engine
	stop   context.CancelFunc
	ended  chan struct{}
}

// guardPort closes the port and starts to ask whether the engine is in force. It must be called before the server
// starts, and after the file system is mounted: the device of the file system identifies the engine. A later engine of
// the volume on this node has another device. If the kernel cannot close the port, guardPort returns when the members
// know that the port has no limit. After an error, no server may start.
func guardPort(ctx context.Context, o Options, target string) (guard, error) {
	if o.InForce == nil {
		return guard{}, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(target, &st); err != nil {
		return guard{}, fmt.Errorf("finding the device of %s: %w", target, err)
	}
	return guardDevice(ctx, o, st.Dev, func(q firewall.Question) (portGuard, error) {
		return firewall.NewPortGuard(o.NFSPort, q, boottime.Now, o.Log)
	})
}

// guardDevice is guardPort for the engine of a device. install closes the port.
func guardDevice(ctx context.Context, o Options, device uint64, install func(firewall.Question) (portGuard, error)) (guard, error) {
	first := make(chan confirmation, 1)
	question := recordFirst(first, device, o.InForce)
	port, err := install(question)
	if err != nil {
		o.Log.WithError(err).Warn("The kernel cannot close the NFS port when the volume moves to another engine. After a move, the next server does not release locks of lost clients early")
		return guard{}, firewall.AskWithoutLimit(ctx, question, boottime.Now)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it guards the server while the server exits, too
	g := guard{port: port, failed: make(chan error, 1), first: first, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		if err := port.Run(ctx); err != nil {
			g.failed <- err
		}
	}()
	return g, nil
}

// recordFirst returns the question about a device. It stores the first answer that confirms the engine.
func recordFirst(first chan<- confirmation, device uint64, inForce func(context.Context, uint64, bool) (Answer, error)) firewall.Question {
	return func(ctx context.Context, limited bool) (firewall.Verdict, error) {
		a, err := inForce(ctx, device, limited)
		if err != nil || a.Verdict != firewall.Yes && a.Verdict != firewall.CannotTell {
			return a.Verdict, err
		}
		select {
		case first <- confirmation{a, boottime.Now()}:
		default:
		}
		return a.Verdict, nil
	}
}

// isClosed reports that no client is served: another share manager may have the volume by now.
func (g guard) isClosed() bool { return g.port != nil && g.port.IsClosed() }

// end restores the port. The server must have exited; otherwise the rule stays, and the port closes.
func (g guard) end(serverEnded bool) error {
	if g.port == nil {
		return nil
	}
	g.stop()
	<-g.ended
	if !serverEnded {
		return errors.New("the NFS server has not exited, so its port closes")
	}
	return g.port.Remove()
}
