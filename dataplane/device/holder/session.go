package holder

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
)

// session serves the requests of one serving process.
type session struct {
	socket      *packets
	keeper      device.Keeper
	successions bool
	ready       chan string // gets the version when the process reports that it serves

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc // guarded by mu
}

// serve returns when either side has closed the socket. Requests may still be under way then, and their answers are
// dropped. It also returns after a packet that it cannot receive, for example because this process has no free
// descriptors. The sender would wait for the answer forever. So serve closes the socket, and the sender leaves its
// devices to a successor.
func (s *session) serve() {
	defer func() { _ = s.socket.conn.Close() }()
	room := make([]byte, packetBytes)
	for {
		m, fds, err := s.socket.receive(room)
		if err != nil {
			return
		}
		switch m.Op {
		case opReady:
			select {
			case s.ready <- m.Version:
			default:
			}
		case opCancel:
			s.mu.Lock()
			if cancel := s.cancels[m.ID]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
		default:
			ctx, cancel := context.WithCancel(context.Background())
			s.mu.Lock()
			s.cancels[m.ID] = cancel
			s.mu.Unlock()
			go func() {
				defer cancel() // not by the map: another request may have the id by now
				s.answer(ctx, m, fds)
			}()
			continue
		}
		closeAll(fds)
	}
}

func (s *session) answer(ctx context.Context, m message, fds []int) {
	defer closeAll(fds)
	r := message{ID: m.ID, Op: opReply}
	given, err := s.do(ctx, m, fds, &r)
	r.setError(err)
	_ = s.socket.send(r, given...) // a process that is gone gets no answer
	closeAll(given)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cancels, m.ID)
}

// do performs a request and returns the descriptors of the reply.
func (s *session) do(ctx context.Context, m message, fds []int, r *message) ([]int, error) {
	switch m.Op {
	case opHello:
		r.Successions, r.Resizes = s.successions, s.keeper.Resizes()
		r.NBD, r.NoNBD = s.keeper.MakesNBD()
		return nil, nil
	case opList:
		all, err := s.keeper.List(ctx)
		for _, h := range all {
			if h.Volume > m.Volume && !r.More {
				r.Held = append(r.Held, h)
				r.More = len(r.Held) == listPart
			}
		}
		return nil, err
	case opAttach:
		if m.Spec == nil || len(fds) != 2 {
			return nil, fmt.Errorf("the request to attach must have a device and 2 descriptors, but has %d descriptors: %w", len(fds), unix.EINVAL)
		}
		// Move the connection to the number that package device requires, before a thread is created that must not have
		// it (see device.handle).
		conn, err := fuse.Dup(fds[0])
		if err != nil {
			return nil, err
		}
		_ = unix.Close(fds[0])
		fds[0] = conn
		h, err := s.keeper.Attach(ctx, *m.Spec, conn, fds[1])
		r.Held = []device.Held{h}
		return nil, err
	case opAttachSocket, opAdoptSocket:
		h, err := s.onSocket(ctx, m, fds)
		r.Held = []device.Held{h}
		return nil, err
	case opAdopt:
		fd, h, err := s.keeper.Adopt(ctx, m.Volume, m.Owner)
		if err != nil {
			return nil, err
		}
		r.Held = []device.Held{h}
		return []int{fd}, nil
	case opAbandon:
		return nil, s.keeper.Leave(ctx, m.Volume, m.Owner)
	case opDetach:
		return nil, s.keeper.Detach(ctx, m.Volume, m.Owner)
	case opResize:
		return nil, s.keeper.Resize(ctx, m.Volume, m.Owner, m.SizeBytes)
	case opAbort:
		return nil, s.keeper.Abort(ctx, m.Volume)
	}
	return nil, fmt.Errorf("the holder does not know the operation %q: %w", m.Op, unix.EOPNOTSUPP)
}

// onSocket performs a request that comes with the kernel's end of a socket pair.
func (s *session) onSocket(ctx context.Context, m message, fds []int) (device.Held, error) {
	switch {
	case len(fds) != 1:
		return device.Held{}, fmt.Errorf("the request %s has %d descriptors, expected 1: %w", m.Op, len(fds), unix.EINVAL)
	case m.Op == opAdoptSocket:
		return s.keeper.AdoptSocket(ctx, m.Volume, m.Owner, fds[0])
	case m.Spec == nil:
		return device.Held{}, fmt.Errorf("the request to attach has no device: %w", unix.EINVAL)
	}
	return s.keeper.AttachSocket(ctx, *m.Spec, fds[0])
}
