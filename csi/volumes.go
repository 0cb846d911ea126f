package csi

import (
	"context"
	"errors"
)

// What a VolumeService answers when it refuses. Any other error means that the
// outcome is unknown: the request may or may not have been carried out.
var (
	// ErrNotFound: there is no volume of that name.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the request contradicts what is there, or was overtaken by another.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the request breaks a rule; it can never succeed as it is.
	ErrInvalid = errors.New("invalid")
	// ErrInsufficientStorage: no set of disks has room for all replicas. Nothing was made.
	ErrInsufficientStorage = errors.New("insufficient storage")
)

// VolumeService is what the controller service needs of the manager. Errors must be
// recognised by errors.Is with the values above.
type VolumeService interface {
	// Volume must answer with the state as stored, not older than this process's last write.
	Volume(ctx context.Context, name string) (Volume, error)
	// Volumes answers with all volumes, as Volume does with one.
	Volumes(ctx context.Context) ([]Volume, error)
	// CreateVolume must not wait for the volume to be ready.
	CreateVolume(ctx context.Context, r VolumeRequest) error
	// DeleteVolume must not wait for the volume to be gone.
	DeleteVolume(ctx context.Context, name string) error
	// Attach leaves a ticket. The same ticket twice must succeed.
	Attach(ctx context.Context, volume string, t Ticket) error
	// Detach takes a ticket back. A missing ticket must succeed.
	Detach(ctx context.Context, volume, ticketID string) error
	// Expand must not wait for the volume to have the size. The size that it was asked to have already must succeed.
	// ErrInsufficientStorage: the disks of its replicas have no room, and nothing was asked for.
	Expand(ctx context.Context, volume string, sizeBytes int64) error
	// CancelExpansion takes back what has not begun; ErrConflict: it has, or there is none.
	CancelExpansion(ctx context.Context, volume string) error
	// Capacity is the size in bytes of the largest volume that CreateVolume would make now for the request, whose name and size do not count,
	// and that can be used on a node; 0: none. An empty node stands for any.
	Capacity(ctx context.Context, r VolumeRequest, node string) (int64, error)
	// HasNode tells whether a node of that name is part of the system, in whatever condition.
	HasNode(ctx context.Context, name string) (bool, error)
}

// VolumeRequest is a volume to be made.
type VolumeRequest struct {
	Name      string
	SizeBytes int64
	// NumberOfReplicas 0 means the setting default-replica-count.
	NumberOfReplicas            int
	StaleReplicaTimeoutMinutes  int
	DataLocality                string
	AccessMode                  string
	ReplicaSoftAntiAffinity     string
	ReplicaZoneSoftAntiAffinity string
	ReplicaDiskSoftAntiAffinity string
	ReplicaAutoBalance          string
	DiskSelector                []string
	NodeSelector                []string
	// FirstNode is where Kubernetes will run the first pod; empty where the volume is created before the pod has a node. The manager
	// is not told: a volume is placed when it is attached, or wherever there is room.
	FirstNode string
}

// Volume is what the controller service looks at.
type Volume struct {
	Name      string
	SizeBytes int64
	// State is one of the states in words.go; empty right after the volume was made.
	State string
	// Faulted: its data cannot be served as it is.
	Faulted bool
	// Ready tells whether it may be attached; NotReadyMessage says why not.
	Ready           bool
	NotReadyMessage string
	// StrictLocalNodes are the nodes on which alone it may be attached; empty: on all.
	StrictLocalNodes []string
	// AccessMode is rwo, rwop or rwx.
	AccessMode string
	// Asked is what the volume was created with, or what a user has set since; its name, size and access mode are
	// left out. An empty field is not known: managers of earlier releases do not send every field.
	Asked VolumeRequest
	// ShareEndpoint is where a shared volume is served, nfs://<address>/<volume>; empty while it is not. ShareState is how its share manager fares.
	ShareEndpoint, ShareState string
	// NodeID is where its engine is or is wanted; empty when nowhere.
	NodeID string
	// Expanding: its users still get less than SizeBytes. ExpansionReason and ExpansionMessage say what holds it up, if
	// that is known.
	Expanding                         bool
	ExpansionReason, ExpansionMessage string
	// Tickets by id.
	Tickets map[string]Ticket
}

// Ticket is one user's wish to attach a volume to a node.
type Ticket struct {
	ID, Type, NodeID string
	// Satisfied: the device is there, or the share is served. Set by the service.
	Satisfied bool
	// Message says why the ticket is not satisfied; may be empty. Set by the service.
	Message string
}
