package holder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
)

// Status is what a holder reports about itself.
type Status struct {
	PID         int           `json:"pid"`     // of the serving process; 0 between two processes
	Version     string        `json:"version"` // of the serving process
	SHA256      string        `json:"sha256"`  // of its executable, if it is a replacement
	Since       time.Time     `json:"since"`   // of the serving process
	Ready       bool          `json:"ready"`   // it has reported that it serves
	Restarts    int           `json:"restarts"`
	Successions bool          `json:"successions"` // devices outlive the serving process
	Devices     []device.Held `json:"devices"`
	Replacement string        `json:"replacement"` // outcome of the last replacement; empty if there was none
}

// listenControl creates the socket. It replaces a socket that a dead process left.
func listenControl(path string) (*net.UnixListener, error) {
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("create the control socket: %w", err)
	}
	old := unix.Umask(0o177) // only root can reach the socket, from its first moment
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("create the control socket: %w", err)
	}
	return l, nil
}

// serveControl answers one request of each connection, until ctx is done.
func (h *holder) serveControl(ctx context.Context, l *net.UnixListener) {
	var answering sync.WaitGroup
	defer answering.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			h.log.WithError(err).Warn("Cannot accept a request to the holder")
			time.Sleep(100 * time.Millisecond)
			continue
		}
		answering.Go(func() { h.control(ctx, &packets{conn: conn}) })
	}
}

func (h *holder) control(ctx context.Context, p *packets) {
	defer func() { _ = p.conn.Close() }()
	_ = p.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	m, fds, err := p.receive(make([]byte, packetBytes))
	if err != nil {
		return
	}
	defer closeAll(fds)
	r := message{Op: opReply}
	switch m.Op {
	case opStatus:
		s := h.snapshot(ctx)
		r.Status = &s
	case opReplace:
		r.setError(h.replace(ctx, m, fds))
	default:
		r.setError(fmt.Errorf("the holder does not know the operation %q: %w", m.Op, unix.EOPNOTSUPP))
	}
	if err := p.send(r); errors.Is(err, unix.EMSGSIZE) && r.Status != nil {
		r.Status.Devices = nil
		_ = p.send(r)
	}
}

func (h *holder) snapshot(ctx context.Context) Status {
	h.mu.Lock()
	s := h.status
	h.mu.Unlock()
	s.Successions = h.successions
	s.Devices, _ = h.devices.List(ctx)
	return s
}

func (h *holder) began(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.PID, h.status.Version, h.status.SHA256 = p.cmd.Process.Pid, h.current.version, h.current.sum
	h.status.Since, h.status.Ready = p.started, false
}

func (h *holder) isReady(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Ready = true
	if version != "" {
		h.status.Version = version
	}
}

func (h *holder) ended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.PID, h.status.Ready = 0, false
}

// Query returns the status of the holder at a socket.
func Query(ctx context.Context, socket string) (Status, error) {
	r, err := ask(ctx, socket, message{Op: opStatus})
	if err != nil {
		return Status{}, err
	}
	if r.Status == nil {
		return Status{}, errors.New("the holder's answer does not contain its status")
	}
	return *r.Status, nil
}

// Replace tells the holder at a socket to run another executable as its serving process. It returns nil when that
// executable serves. It returns the reason when the holder has gone back to the previous one; that may take a minute.
// If ctx is done, the holder continues without the caller. ErrBusy means that the replacement was not started.
func Replace(ctx context.Context, socket string, executable *os.File, version, sha256 string) error {
	_, err := ask(ctx, socket, message{Op: opReplace, Version: version, SHA256: sha256}, int(executable.Fd()))
	return err
}

func ask(ctx context.Context, socket string, m message, fds ...int) (message, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return message{}, fmt.Errorf("connect to the holder: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	p := &packets{conn: c.(*net.UnixConn)}
	if err := p.send(m, fds...); err != nil {
		return message{}, err
	}
	r, given, err := p.receive(make([]byte, packetBytes))
	closeAll(given)
	if err != nil {
		return message{}, errors.Join(err, ctx.Err())
	}
	return r, r.err()
}
