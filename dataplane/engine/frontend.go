package engine

import (
	"context"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Frontend offers one volume to its users. Only one engine uses it.
type Frontend interface {
	// Start creates the device and returns its path. If it fails, it must leave nothing behind. The backend already
	// serves.
	Start(ctx context.Context, volume string, sizeBytes int64, b nbd.Backend) (endpoint string, err error)
	// Stop removes the device. While the device is open or mounted anywhere, it returns an error and changes nothing.
	// When it returns, the backend has received everything that was written to the device before.
	Stop(ctx context.Context) error
}

// Resizer is a Frontend with a device that can become larger while it is used.
type Resizer interface {
	// Resize makes the device as large as the backend now is. It may be repeated; a size that the device already has is
	// a success. After an error the device has either its previous size or the new one.
	Resize(ctx context.Context, sizeBytes int64) error
	// Size is the size that users see, in bytes. For a device that was taken over, it may be less than the size in
	// Start.
	Size() int64
}

// Aborter is a Frontend that can end while its users have it open. Any other frontend is stopped by the engine, and
// left alone if it is in use.
type Aborter interface {
	// Abort removes the device from the path where users find it, makes every operation on it fail, and frees the parts
	// that no user holds. The rest frees itself when the users close it. It must not wait for users.
	Abort(ctx context.Context) error
}
