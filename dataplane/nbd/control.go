package nbd

import (
	"context"
	"fmt"
	"math"
)

// Controller is an optional interface of a Backend: a private command with a small payload in each direction. The two
// ends define the meaning of the operations.
//
// On the wire it is a request of the private type 0x4c48. Its offset is op, and its length is the length of the
// payload. As in a write, the payload follows the header. The reply is one chunk of the private content type 0x4c48, or
// an error. The command needs structured replies and a writable export. The handshake does not show whether a server
// knows the command. So send it only to a server that is known to know it: any other server would parse the payload as
// requests.
type Controller interface {
	// Control performs op. Payload and reply may be empty. Neither may be longer than MaxControl. It must not keep the
	// payload.
	Control(ctx context.Context, op uint16, payload []byte) ([]byte, error)
}

// MaxControl is the longest payload of a Control, in bytes, in each direction.
const MaxControl = 1 << 20

var _ Controller = (*Client)(nil)

func validateControl(r request, l limits) *Error {
	switch {
	case !l.control:
		return errorf(EINVAL, "%s is not offered", r.Type)
	case r.Flags != 0 || r.Offset > math.MaxUint16:
		return errorf(EINVAL, "%s %d does not allow the flags %#x", r.Type, r.Offset, r.Flags)
	case r.Length > MaxControl:
		return errorf(EINVAL, "%s of %d bytes exceeds the maximum of %d", r.Type, r.Length, MaxControl)
	}
	return nil
}

// control performs a control request on the server.
func (t *task) control(ctx context.Context) error {
	var payload []byte
	if t.buf != nil {
		payload = t.buf.data
	}
	reply, err := t.conn.export.Backend.(Controller).Control(ctx, uint16(t.request.Offset), payload)
	if err != nil {
		return err
	}
	if len(reply) > MaxControl {
		return fmt.Errorf("BUG: the reply to a control has %d bytes: %w", len(reply), EOVERFLOW)
	}
	t.extra = append(t.extra[:0], reply...) // a copy, because its array is reused
	return nil
}

// Control implements Controller.
func (c *Client) Control(ctx context.Context, op uint16, payload []byte) ([]byte, error) {
	if len(payload) > MaxControl {
		return nil, errorf(EINVAL, "a control of %d bytes exceeds the maximum of %d", len(payload), MaxControl)
	}
	a, err := c.do(ctx, request{Type: cmdControl, Offset: uint64(op), Length: uint32(len(payload))}, payload)
	return a.control, err
}
