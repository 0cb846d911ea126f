package csi

import (
	"context"
	"errors"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// The errors with which a VolumeService refuses. Any other error means that the result is unknown: the request may or
// may not have been carried out.
var (
	// ErrNotFound: no volume has that name.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the request contradicts the present state, or another request overtook it.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the request breaks a rule; it can never succeed unchanged.
	ErrInvalid = errors.New("invalid")
	// ErrInsufficientStorage: no set of disks has space for all replicas. Nothing was created.
	ErrInsufficientStorage = errors.New("insufficient storage")
)

// VolumeService is the part of the manager that the controller service needs. Callers recognise errors by errors.Is
// with the values above.
type VolumeService interface {
	// Volume must return the state as stored, not older than this process's last write.
	Volume(ctx context.Context, name string) (Volume, error)
	// Volumes returns all volumes, with the same guarantee as Volume.
	Volumes(ctx context.Context) ([]Volume, error)
	// CreateVolume must not wait for the volume to be ready.
	CreateVolume(ctx context.Context, r VolumeRequest) error
	// DeleteVolume must not wait for the volume to be gone.
	DeleteVolume(ctx context.Context, name string) error
	// Attach creates a ticket. The same ticket twice must succeed.
	Attach(ctx context.Context, volume string, t Ticket) error
	// Detach removes a ticket. A missing ticket must succeed.
	Detach(ctx context.Context, volume, ticketID string) error
	// Expand must not wait for the volume to have the size. If the same size was already requested, Expand must
	// succeed. ErrInsufficientStorage: the disks of its replicas have not enough space, and nothing was requested.
	Expand(ctx context.Context, volume string, sizeBytes int64) error
	// CancelExpansion cancels an expansion that has not started. ErrConflict: it has started, or there is none.
	CancelExpansion(ctx context.Context, volume string) error
	// Capacity is the size in bytes of the largest volume that CreateVolume would create now for the request and that
	// can be used on a node; 0: none. The request's name and size do not count. An empty node stands for any.
	Capacity(ctx context.Context, r VolumeRequest, node string) (int64, error)
	// HasNode reports whether a node with that name is part of the system, in any condition.
	HasNode(ctx context.Context, name string) (bool, error)
}

// VolumeRequest is a volume to create.
type VolumeRequest struct {
	Name      string
	SizeBytes int64
	// NumberOfReplicas 0 means the setting default-replica-count.
	NumberOfReplicas           int
	StaleReplicaTimeoutMinutes int
	DataLocality               string
	AccessMode                 string
	types.VolumeOptions
	DiskSelector []string
	NodeSelector []string
	// FirstNode is where Kubernetes will run the first pod. It is empty if the volume is created before the pod has a
	// node. The manager does not get it: a volume is placed when it is attached, or wherever there is space.
	FirstNode string
}

// Volume is the part of a volume that the controller service uses.
type Volume struct {
	Name      string
	SizeBytes int64
	// State is one of the states in restvalues.go; empty right after the volume was created.
	State string
	// Faulted: its data cannot be served in its present state.
	Faulted bool
	// Ready says whether it may be attached; NotReadyMessage says why not.
	Ready           bool
	NotReadyMessage string
	// StrictLocalNodes are the only nodes to which it may be attached; empty: all.
	StrictLocalNodes []string
	// AccessMode is rwo, rwop or rwx.
	AccessMode string
	// Asked has the values with which the volume was created, or that a user has set since. It lacks name, size and
	// access mode. An empty field is not known: managers of earlier releases do not send every field.
	Asked VolumeRequest
	// ShareEndpoint is where a shared volume is served, nfs://<address>/<volume>; empty while it is not served.
	// ShareState is the state of its share manager.
	ShareEndpoint, ShareState string
	// NodeID is where its engine is or is requested; empty if nowhere.
	NodeID string
	// Expanding: its users still get less than SizeBytes. ExpansionReason and ExpansionMessage say why, if that is
	// known.
	Expanding                         bool
	ExpansionReason, ExpansionMessage string
	// Tickets by id.
	Tickets map[string]Ticket
}

// Ticket is one user's request to attach a volume to a node.
type Ticket struct {
	ID, Type, NodeID string
	// Satisfied: the device exists, or the share is served. Set by the service.
	Satisfied bool
	// Message says why the ticket is not satisfied; may be empty. Set by the service.
	Message string
}
