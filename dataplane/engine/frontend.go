package engine

import (
	"context"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Frontend offers one volume to its users. It belongs to one engine.
type Frontend interface {
	// Start makes the device and returns its path. It must leave nothing behind when it fails. The backend serves already.
	Start(ctx context.Context, volume string, sizeBytes int64, b nbd.Backend) (endpoint string, err error)
	// Stop removes the device. It returns ErrInUse, and changes nothing, while the device is open or mounted anywhere. All that
	// was written to the device before has been given to the backend when it returns.
	Stop(ctx context.Context) error
}

// Resizer is a Frontend whose device can become larger while it is used.
type Resizer interface {
	// Resize makes the device as large as the backend by now is. It may be repeated; a size that the device has is success. An error says
	// that the device has the size that it had, or the new one.
	Resize(ctx context.Context, sizeBytes int64) error
	// Size is what users see, in bytes. It may be less than Start was asked for, of a device that was taken over.
	Size() int64
}

// Aborter is a Frontend that can end though its users have it open. The engine stops any other, and leaves it if it is in use.
type Aborter interface {
	// Abort removes the device from where users find it, makes everything that is done on it fail, and frees it as far as its users
	// let go of it; the rest frees itself when they do. It must not wait for users.
	Abort(ctx context.Context) error
}
