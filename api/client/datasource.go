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
