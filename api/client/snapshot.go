package client

import (
	"context"
	"net/http"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// CreateVolumeFrom is like CreateVolume. The new volume gets the content of a data source: vol://<volume> or
// snap://<volume>/<snapshot>. ErrInvalid: the manager does not offer this, or the source does not fit.
func (c *Client) CreateVolumeFrom(ctx context.Context, v v1.VolumeCreate, dataSource string) (*v1.Volume, error) {
	return call[v1.Volume](ctx, c, http.MethodPost, "/volumes", struct {
		v1.VolumeCreate
		DataSource string `json:"dataSource"`
	}{v, dataSource})
}

// CreateSnapshot requests a snapshot of a volume and does not wait until it is taken. ErrNotFound: no volume has that
// name. ErrConflict: the name of the snapshot is in use, or the volume's state does not allow a snapshot now.
func (c *Client) CreateSnapshot(ctx context.Context, volume string, in v1.SnapshotCRInput) (*v1.SnapshotCR, error) {
	return call[v1.SnapshotCR](ctx, c, http.MethodPost, action("volumes", volume, "snapshotCRCreate"), in)
}

// Snapshots lists the snapshots of a volume. ErrNotFound: no volume has that name.
func (c *Client) Snapshots(ctx context.Context, volume string) ([]v1.SnapshotCR, error) {
	path := action("volumes", volume, "snapshotCRList")
	collection, err := call[v1.Collection[v1.SnapshotCR]](ctx, c, http.MethodPost, path, nil)
	if err != nil {
		return nil, err
	}
	return collection.Data, nil
}

// Snapshot returns a snapshot of a volume. ErrNotFound: the volume or the snapshot does not exist.
func (c *Client) Snapshot(ctx context.Context, volume, name string) (*v1.SnapshotCR, error) {
	return call[v1.SnapshotCR](ctx, c, http.MethodPost, action("volumes", volume, "snapshotCRGet"), v1.SnapshotCRInput{Name: name})
}

// DeleteSnapshot requests the deletion of a snapshot. It does not wait until the space is free. ErrNotFound: the volume
// or the snapshot does not exist.
func (c *Client) DeleteSnapshot(ctx context.Context, volume, name string) error {
	_, err := call[v1.Empty](ctx, c, http.MethodPost, action("volumes", volume, "snapshotCRDelete"), v1.SnapshotCRInput{Name: name})
	return err
}
