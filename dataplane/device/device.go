package device

import (
	"context"
	"errors"
)

// Owner is one start of an engine: the one that serves a device, or served it last.
type Owner struct {
	Engine     string `json:"engine"`
	Generation int64  `json:"generation"`
	Session    string `json:"session"`
}

// Spec is a device to be kept.
type Spec struct {
	Volume    string `json:"volume"`
	SizeBytes int64  `json:"sizeBytes"`
	Owner     Owner  `json:"owner"`
	// MaxWrite is what was agreed with the kernel when the file system was mounted: the longest data of one request, in bytes. It stays
	// for the life of the device, so a successor must be able to take requests of this length.
	MaxWrite uint32 `json:"maxWrite"`
	// Kind is how the kernel reaches the process that serves; "", in what earlier releases wrote, is KindFUSE.
	Kind Kind `json:"kind,omitempty"`
}

// Kind is how the kernel reaches the process that serves a device.
type Kind string

const (
	KindFUSE Kind = ""    // a FUSE file and a loop device on it
	KindNBD  Kind = "nbd" // the kernel's NBD client, on a socket
)

// Held is a device that is kept.
type Held struct {
	Spec
	Path       string `json:"path"`       // where users find it
	Loop       string `json:"loop"`       // path of the loop device
	Dev        uint64 `json:"dev"`        // major and minor number of the loop device
	Connection uint32 `json:"connection"` // the kernel's number of the FUSE connection
	// Served says that a Frontend of this process, or of the process that the Keeper serves, has the device. One that is not served holds
	// its users up until it is adopted or aborted.
	Served bool `json:"served"`
}

var (
	// ErrFenced says that a device belongs to another start of an engine: one of a higher generation, or another one of the same.
	ErrFenced = errors.New("the device belongs to another start of an engine")
	// ErrNotHeld says that no device of the volume is kept.
	ErrNotHeld = errors.New("no device of the volume is kept")
	// ErrNoNBD says that devices of KindNBD are not made here.
	ErrNoNBD = errors.New("devices are not made with NBD here")
	// ErrNoResize says that devices cannot grow here.
	ErrNoResize = errors.New("the process that keeps the device is of a release that cannot make it larger: its pod must be replaced first")
	// ErrServed says that a device is served, or has an operation under way that must end first.
	ErrServed = errors.New("the device is busy with its owner")
	// ErrEnded says that an operation was given up because the process that asked for it ended, or the device got another owner. Nothing
	// was changed.
	ErrEnded = errors.New("the owner that asked has ended")
)

// Keeper keeps devices for the processes that serve them, one after the other. It knows nothing of their content.
type Keeper interface {
	// List returns the devices that are kept, in order of volumes.
	List(ctx context.Context) ([]Held, error)
	// Attach makes a device of a mounted file system: it configures a loop device on file, puts the node in place and keeps the FUSE
	// descriptor. The caller keeps its own descriptors, serves the file system already, and counts as serving the device. Nothing is left
	// when it fails.
	Attach(ctx context.Context, spec Spec, conn, file int) (Held, error)
	// Adopt gives a descriptor of the FUSE connection of a device that no process serves, and records owner as the one that serves it. The
	// caller must ask the kernel for what its predecessor had taken (fuse.Resend) before it reads. It returns ErrNotHeld, ErrServed, and
	// ErrFenced for a lower generation than the recorded one or the same one with another session.
	Adopt(ctx context.Context, volume string, owner Owner) (conn int, h Held, err error)
	// AttachSocket is Attach for a device of KindNBD: it gives the kernel the socket, on whose other end the caller serves already. The
	// descriptor stays the caller's. It returns ErrNoNBD where devices of that kind are not made.
	AttachSocket(ctx context.Context, spec Spec, socket int) (Held, error)
	// AdoptSocket is Adopt for a device of KindNBD: the kernel sends on the socket what it sent to the predecessor and got no answer to.
	AdoptSocket(ctx context.Context, volume string, owner Owner, socket int) (Held, error)
	// MakesNBD tells whether devices of KindNBD are made here, and if not, why.
	MakesNBD() (bool, string)
	// Leave says that the owner serves the device no more: it has let go of the descriptor and has no request under way. The device stays.
	Leave(ctx context.Context, volume string, owner Owner) error
	// Detach removes a device: what users wrote is given to the owner first, which must go on serving until Detach returns. While the device
	// is open or mounted anywhere it returns engine.ErrInUse and has changed nothing. When ctx ends it looks no more whether users let go,
	// but what it began it finishes. No device of the volume is success.
	Detach(ctx context.Context, volume string, owner Owner) error
	// Resize makes a device as large as its file by now is, for its users too; the owner serves the file, of sizeBytes, and has told the
	// kernel (fuse.Server.Grow). A size that the device has is success. It returns ErrNotHeld, ErrFenced, and ErrNoResize from a keeper of
	// an earlier release.
	Resize(ctx context.Context, volume string, owner Owner, sizeBytes int64) error
	// Abort removes a device at once: its node goes, all that is done on it from now on fails, and what is left of it goes with its last
	// user. It never waits for users. No device of the volume is success.
	Abort(ctx context.Context, volume string) error
	// Successions tells whether devices outlive the process that serves them.
	Successions() bool
	// Resizes tells whether devices can grow.
	Resizes() bool
}
