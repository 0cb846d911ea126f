package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
)

// socketEnv is the environment variable with the number of the serving process's socket.
const socketEnv = "LONGHORN_HOLDER_SOCKET"

// ErrNoHolder says that this process was not started by a holder.
var ErrNoHolder = errors.New("this process was not started by a holder")

// Client is the serving process's connection to the holder.
type Client struct {
	socket      *packets
	successions bool
	resizes     bool
	nbd         bool
	noNBD       string // the reason

	leaving chan struct{} // closed when the holder tells the process to leave
	ended   chan struct{} // closed when the holder is gone
	mounts  string

	mu    sync.Mutex
	last  uint64                  // guarded by mu
	calls map[uint64]chan<- reply // guarded by mu; nil when the holder is gone
}

type reply struct {
	message
	fds []int
}

var _ device.Keeper = (*Client)(nil)

// Connect connects to the holder that started this process.
func Connect() (*Client, error) {
	fd, err := strconv.Atoi(os.Getenv(socketEnv))
	if err != nil {
		return nil, ErrNoHolder
	}
	if err := os.Unsetenv(socketEnv); err != nil { // children of this process are not serving processes
		return nil, fmt.Errorf("connect to the holder: %w", err)
	}
	unix.CloseOnExec(fd)
	socket, err := fromFD(fd, "the holder's socket")
	if err != nil {
		return nil, err
	}
	c, err := newClient(socket)
	if err == nil {
		c.mounts = os.Getenv(mountsEnv)
	}
	return c, err
}

// Mounts returns the file of a mount namespace (setns(2)) that contains the node's mounts of volumes. It returns "" if
// the holder keeps no such namespace, because it is of an earlier version or was not allowed to.
func (c *Client) Mounts() string { return c.mounts }

func newClient(socket *packets) (*Client, error) {
	c := &Client{socket: socket, leaving: make(chan struct{}), ended: make(chan struct{}), calls: map[uint64]chan<- reply{}}
	go c.receive()
	r, err := c.call(context.Background(), message{Op: opHello})
	if err != nil {
		return nil, fmt.Errorf("connect to the holder: %w", err)
	}
	c.successions, c.resizes, c.nbd, c.noNBD = r.Successions, r.Resizes, r.NBD, r.NoNBD
	if !c.nbd && c.noNBD == "" {
		c.noNBD = "the process that keeps the devices is of a release without NBD; its instance manager pod must be replaced first"
	}
	return c, nil
}

// Leaving is closed when this process must leave its devices to a successor. Then it stops its service, leaves its
// devices as they are, and exits with success.
func (c *Client) Leaving() <-chan struct{} { return c.leaving }

// Ended is closed when the holder is gone. Its devices disappear with it, so this process must exit too.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// Ready informs the holder that this process serves.
func (c *Client) Ready(version string) error {
	return c.socket.send(message{Op: opReady, Version: version})
}

// receive passes replies to their callers until the holder is gone.
func (c *Client) receive() {
	room := make([]byte, packetBytes)
	var left sync.Once
	for {
		m, fds, err := c.socket.receive(room)
		if err != nil {
			break
		}
		if m.Op == opLeave {
			left.Do(func() { close(c.leaving) })
			continue
		}
		c.mu.Lock()
		waiting := c.calls[m.ID]
		delete(c.calls, m.ID)
		c.mu.Unlock()
		if waiting == nil {
			closeAll(fds)
			continue
		}
		waiting <- reply{message: m, fds: fds}
	}
	_ = c.socket.conn.Close()
	close(c.ended)
	c.mu.Lock()
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for _, waiting := range calls {
		close(waiting)
	}
}

// call sends a request to the holder and waits for its answer, even after ctx is done. When ctx is done, call informs
// the holder, which completes the steps that it cannot undo.
func (c *Client) call(ctx context.Context, m message, fds ...int) (reply, error) {
	answer := make(chan reply, 1)
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return reply{}, fmt.Errorf("%s: the holder has exited: %w", m.Op, unix.EPIPE)
	}
	c.last++
	m.ID = c.last
	c.calls[m.ID] = answer
	c.mu.Unlock()
	if err := c.socket.send(m, fds...); err != nil {
		c.mu.Lock()
		delete(c.calls, m.ID)
		c.mu.Unlock()
		return reply{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.socket.send(message{Op: opCancel, ID: m.ID}) })
	defer stop()
	r, ok := <-answer
	if !ok {
		return reply{}, fmt.Errorf("%s: the holder has exited: %w", m.Op, unix.EPIPE)
	}
	if err := r.err(); err != nil {
		closeAll(r.fds)
		return reply{}, err
	}
	return r, nil
}

// List implements device.Keeper.
func (c *Client) List(ctx context.Context) ([]device.Held, error) {
	all := []device.Held{}
	for after := ""; ; after = all[len(all)-1].Volume {
		r, err := c.call(ctx, message{Op: opList, Volume: after})
		if err != nil {
			return nil, err
		}
		all = append(all, r.Held...)
		if !r.More || len(r.Held) == 0 {
			return all, nil
		}
	}
}

// Attach implements device.Keeper.
func (c *Client) Attach(ctx context.Context, spec device.Spec, conn, file int) (device.Held, error) {
	r, err := c.call(ctx, message{Op: opAttach, Spec: &spec}, conn, file)
	if err != nil {
		return device.Held{}, err
	}
	return only(r)
}

// Adopt implements device.Keeper.
func (c *Client) Adopt(ctx context.Context, volume string, owner device.Owner) (int, device.Held, error) {
	r, err := c.call(ctx, message{Op: opAdopt, Volume: volume, Owner: owner})
	if err != nil {
		return -1, device.Held{}, err
	}
	h, err := only(r)
	if err != nil || len(r.fds) != 1 {
		closeAll(r.fds)
		return -1, device.Held{}, fmt.Errorf("adopt the device of volume %s: the holder sent %d descriptors, expected 1 (%w)", volume, len(r.fds), errors.Join(err, unix.EPROTO))
	}
	defer closeAll(r.fds)
	conn, err := fuse.Dup(r.fds[0]) // at the number that package device requires for connections
	return conn, h, err
}

func only(r reply) (device.Held, error) {
	if len(r.Held) != 1 {
		return device.Held{}, fmt.Errorf("the holder answered with %d devices, expected 1", len(r.Held))
	}
	return r.Held[0], nil
}

// Leave implements device.Keeper.
func (c *Client) Leave(ctx context.Context, volume string, owner device.Owner) error {
	_, err := c.call(ctx, message{Op: opAbandon, Volume: volume, Owner: owner})
	return err
}

// Detach implements device.Keeper.
func (c *Client) Detach(ctx context.Context, volume string, owner device.Owner) error {
	_, err := c.call(ctx, message{Op: opDetach, Volume: volume, Owner: owner})
	return err
}

// Resize implements device.Keeper.
func (c *Client) Resize(ctx context.Context, volume string, owner device.Owner, sizeBytes int64) error {
	if !c.resizes {
		return fmt.Errorf("volume %s: %w", volume, device.ErrNoResize)
	}
	_, err := c.call(ctx, message{Op: opResize, Volume: volume, Owner: owner, SizeBytes: sizeBytes})
	return err
}

// AttachSocket implements device.Keeper.
func (c *Client) AttachSocket(ctx context.Context, spec device.Spec, socket int) (device.Held, error) {
	if !c.nbd {
		return device.Held{}, fmt.Errorf("%w: %s", device.ErrNoNBD, c.noNBD)
	}
	r, err := c.call(ctx, message{Op: opAttachSocket, Spec: &spec}, socket)
	if err != nil {
		return device.Held{}, err
	}
	return only(r)
}

// AdoptSocket implements device.Keeper.
func (c *Client) AdoptSocket(ctx context.Context, volume string, owner device.Owner, socket int) (device.Held, error) {
	r, err := c.call(ctx, message{Op: opAdoptSocket, Volume: volume, Owner: owner}, socket)
	if err != nil {
		return device.Held{}, err
	}
	return only(r)
}

// MakesNBD implements device.Keeper.
func (c *Client) MakesNBD() (bool, string) { return c.nbd, c.noNBD }

// Resizes implements device.Keeper.
func (c *Client) Resizes() bool { return c.resizes }

// Abort implements device.Keeper.
func (c *Client) Abort(ctx context.Context, volume string) error {
	_, err := c.call(ctx, message{Op: opAbort, Volume: volume})
	return err
}

// Successions implements device.Keeper.
func (c *Client) Successions() bool { return c.successions }
