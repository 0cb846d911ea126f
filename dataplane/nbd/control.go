package nbd

import (
	"context"
	"fmt"
	"math"
)

// Controller is what a Backend may offer beside bytes: a private command with a small payload each way. What the operations mean
// is between the two ends.
//
// On the wire it is a request of the private type 0x4c48: its offset is op, its length that of the payload, and the payload follows
// the header as that of a write does. The reply is one chunk of the private content type 0x4c48, or an error. It needs structured
// replies and a writable export. No handshake says whether a server knows the command, so only send it to a server that is known
// to: another would take the payload for requests.
type Controller interface {
	// Control performs op. Payload and reply may be empty; neither may be longer than MaxControl. It must not keep the payload.
	Control(ctx context.Context, op uint16, payload []byte) ([]byte, error)
}

// MaxControl is the longest payload of a Control, in bytes, each way.
const MaxControl = 1 << 20

var _ Controller = (*Client)(nil)

func validateControl(r request, l limits) *Error {
	switch {
	case !l.control:
		return errorf(EINVAL, "%s is not offered", r.Type)
	case r.Flags != 0 || r.Offset > math.MaxUint16:
		return errorf(EINVAL, "%s %d with flags %#x", r.Type, r.Offset, r.Flags)
	case r.Length > MaxControl:
		return errorf(EINVAL, "%s of %d bytes, more than %d", r.Type, r.Length, MaxControl)
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
		return fmt.Errorf("BUG: reply of %d bytes to a control: %w", len(reply), EOVERFLOW)
	}
	t.extra = append(t.extra[:0], reply...) // a copy, for its array is used again
	return nil
}

// Control implements Controller.
func (c *Client) Control(ctx context.Context, op uint16, payload []byte) ([]byte, error) {
	if len(payload) > MaxControl {
		return nil, errorf(EINVAL, "control of %d bytes, more than %d", len(payload), MaxControl)
	}
	a, err := c.do(ctx, request{Type: cmdControl, Offset: uint64(op), Length: uint32(len(payload))}, payload)
	return a.control, err
}
