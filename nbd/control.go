package nbd

import "context"

// Controller is what a Backend may offer beside bytes: a private command with a small payload each way. What the operations mean
// is between the two ends.
type Controller interface {
	// Control performs op. Payload and reply may be empty; neither may be longer than MaxControl.
	Control(ctx context.Context, op uint16, payload []byte) ([]byte, error)
}

// MaxControl is the longest payload of a Control, in bytes, each way.
const MaxControl = 1 << 20
