package device

import (
	"context"
	"errors"
)

// Owner is one start of an engine: the start that serves a device, or that served it last.
type Owner struct {
	Engine     string `json:"engine"`
	Generation int64  `json:"generation"`
	Session    string `json:"session"`
}

// Spec describes a device that a Keeper must keep.
type Spec struct {
	Volume    string `json:"volume"`
	SizeBytes int64  `json:"sizeBytes"`
	Owner     Owner  `json:"owner"`
	// MaxWrite is the longest data of one request, in bytes. The server and the kernel agreed on it when the file
	// system was mounted, and it stays for the life of the device. So a successor must accept requests of this length.
	MaxWrite uint32 `json:"maxWrite"`
	// Kind is the way in which the kernel reaches the process that serves. "" is KindFUSE; earlier releases wrote "".
	Kind Kind `json:"kind,omitempty"`
}

// Kind is the way in which the kernel reaches the process that serves a device.
type Kind string

const (
	KindFUSE Kind = ""    // a FUSE file and a loop device on it
	KindNBD  Kind = "nbd" // the kernel's NBD client, on a socket
)

// Held is a device that a Keeper keeps.
type Held struct {
	Spec
	Path       string `json:"path"`       // the path where users find the device
	Loop       string `json:"loop"`       // path of the loop device
	Dev        uint64 `json:"dev"`        // major and minor number of the loop device
	Connection uint32 `json:"connection"` // the kernel's number of the FUSE connection
	// Served says that a Frontend serves the device: one of this process, or one of the process that the Keeper serves.
	// The users of a device that is not served wait until it is adopted or aborted.
	Served bool `json:"served"`
}

var (
	// ErrInUse says that a device is open or mounted. Nothing was changed.
	ErrInUse = errors.New("the device is in use")
	// ErrFenced says that a device belongs to another start of an engine: one of a higher generation, or another one of
	// the same generation.
	ErrFenced = errors.New("the device belongs to another start of an engine")
	// ErrNotHeld says that the Keeper keeps no device of the volume.
	ErrNotHeld = errors.New("no device of the volume is kept")
	// ErrNoNBD says that this Keeper does not create devices of KindNBD.
	ErrNoNBD = errors.New("devices cannot be created with NBD on this node")
	// ErrNoResize says that this Keeper cannot make devices larger.
	ErrNoResize = errors.New("the process that keeps the device is of a release that cannot enlarge it; its instance manager pod must be replaced first")
	// ErrServed says that a device is served, or that it has an operation under way that must finish first.
	ErrServed = errors.New("the device is busy: a process serves it, or an operation on it has not ended")
	// ErrEnded says that an operation was abandoned: the process that requested it has exited, or the device has got
	// another owner. Nothing was changed.
	ErrEnded = errors.New("the process that requested the operation has exited, or the device has another owner")
)

// Keeper keeps devices for the processes that serve them, one after the other. It knows nothing about their content.
type Keeper interface {
	// List returns the devices that the Keeper keeps, in order of volumes.
	List(ctx context.Context) ([]Held, error)
	// Attach creates a device from a mounted file system. It configures a loop device on file, puts the node in place
	// and keeps the FUSE descriptor. The caller keeps its own descriptors. It must already serve the file system, and
	// it counts as serving the device. If Attach fails, it leaves nothing behind.
	Attach(ctx context.Context, spec Spec, conn, file int) (Held, error)
	// Adopt returns a descriptor of the FUSE connection of a device that no process serves. It records owner as the one
	// that serves the device. Before the caller reads from the connection, it must tell the kernel to resend the
	// requests that its predecessor had taken (fuse.Resend). The errors are ErrNotHeld, ErrServed, and ErrFenced.
	// ErrFenced means that the generation is lower than the recorded one, or is the same with another session.
	Adopt(ctx context.Context, volume string, owner Owner) (conn int, h Held, err error)
	// AttachSocket is Attach for a device of KindNBD: it gives the kernel the socket. The caller must already serve the
	// other end of it. The descriptor stays the caller's. The error is ErrNoNBD where devices of that kind are not
	// created.
	AttachSocket(ctx context.Context, spec Spec, socket int) (Held, error)
	// AdoptSocket is Adopt for a device of KindNBD. On the socket, the kernel again sends the requests that it sent to
	// the predecessor and that got no answer.
	AdoptSocket(ctx context.Context, volume string, owner Owner, socket int) (Held, error)
	// MakesNBD reports whether this Keeper creates devices of KindNBD, and if not, the reason.
	MakesNBD() (bool, string)
	// Leave says that the owner no longer serves the device: it has closed the descriptor and has no request under way.
	// The device stays.
	Leave(ctx context.Context, volume string, owner Owner) error
	// Detach removes a device. First it gives the owner the data that users wrote, so the owner must continue to serve
	// until Detach returns. If the device is open or mounted anywhere, Detach returns ErrInUse and has changed
	// nothing. When ctx is done, Detach no longer waits for users to close the device, but it completes the steps that
	// it has started. It returns nil if there is no device of the volume.
	Detach(ctx context.Context, volume string, owner Owner) error
	// Resize makes a device as large as its file is now, also for its users. The owner must already serve the file with
	// sizeBytes, and must have informed the kernel (fuse.Server.Grow). Resize returns nil if the device already has
	// that size. The errors are ErrNotHeld, ErrFenced, and ErrNoResize from a keeper of an earlier release.
	Resize(ctx context.Context, volume string, owner Owner, sizeBytes int64) error
	// Abort removes a device at once: it removes the node, and all requests on the device fail from now on. The
	// remaining parts disappear when the last user closes the device. Abort never waits for users. It returns nil if
	// there is no device of the volume.
	Abort(ctx context.Context, volume string) error
	// Successions reports whether devices outlive the process that serves them.
	Successions() bool
	// Resizes reports whether devices can grow.
	Resizes() bool
}
