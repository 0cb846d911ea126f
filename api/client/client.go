// Package client is the typed Go client of the REST API: volumes, their snapshots, nodes and settings. It owns how requests are sent and
// how failures are classified. It must know only the wire structs of the server.
//
// It does not retry: its callers are called again by their own callers, which know better which call may be repeated.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// CallTimeout bounds each call, even if its context allows more time. A connection to a daemon on a node that is down
// answers nothing, and the next call uses another connection. A call waits only for a daemon's answer.
const CallTimeout = 15 * time.Second

// maxBody is the longest response that is read, in bytes. In a cluster's full list of volumes, each volume has a few
// kilobytes.
const maxBody = 256 << 20

// Client calls one server. It may be used by several goroutines.
type Client struct {
	base string // without trailing slash
	http *http.Client
}

// New returns a client of the API at base, such as http://longhorn-backend:9500/v1. If httpClient is nil, it creates
// one. New does not contact the server.
func New(base string, httpClient *http.Client) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse the manager's URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the manager's URL %q must have the form http://host:port/v1", base)
	}
	if httpClient == nil {
		httpClient = &http.Client{}
	}
	return &Client{base: strings.TrimRight(u.String(), "/"), http: httpClient}, nil
}

// Volumes lists all volumes, sorted by name.
func (c *Client) Volumes(ctx context.Context) ([]v1.Volume, error) {
	return list[v1.Volume](ctx, c, "/volumes")
}

// Volume returns a volume; ErrNotFound if no volume has that name.
func (c *Client) Volume(ctx context.Context, name string) (*v1.Volume, error) {
	return call[v1.Volume](ctx, c, http.MethodGet, item("volumes", name), nil)
}

// CreateVolume creates a volume. It returns as soon as the volume is recorded: the state is empty or "creating" until
// its replicas have a place. ErrConflict: the name is in use. ErrInsufficient: the disks have no room for it.
// ErrInvalid: a field is wrong.
func (c *Client) CreateVolume(ctx context.Context, v v1.VolumeCreate) (*v1.Volume, error) {
	return call[v1.Volume](ctx, c, http.MethodPost, "/volumes", v)
}

// DeleteVolume requests the deletion of a volume and does not wait for it. ErrNotFound: no volume has that name.
func (c *Client) DeleteVolume(ctx context.Context, name string) error {
	_, err := call[v1.Empty](ctx, c, http.MethodDelete, item("volumes", name), nil)
	return err
}

// AttachVolume creates a ticket and does not wait until it is satisfied. It may be repeated. ErrConflict: the volume is
// requested on another node, or cannot be attached now.
func (c *Client) AttachVolume(ctx context.Context, name string, in v1.AttachInput) (*v1.Volume, error) {
	return call[v1.Volume](ctx, c, http.MethodPost, action("volumes", name, "attach"), in)
}

// DetachVolume removes a ticket and does not wait until the volume is detached. It may be repeated: a missing ticket is
// not an error.
func (c *Client) DetachVolume(ctx context.Context, name string, in v1.DetachInput) (*v1.Volume, error) {
	return call[v1.Volume](ctx, c, http.MethodPost, action("volumes", name, "detach"), in)
}

// ExpandVolume requests a larger size of a volume and does not wait for it. It may be repeated. If a claim requests
// less than the size, the claim is changed to request the size first, and the volume stays unchanged. ErrInvalid: the
// volume is larger. ErrConflict: it cannot be expanded now. ErrInsufficient: in.MustFit is set, and a disk has no room.
func (c *Client) ExpandVolume(ctx context.Context, name string, in v1.ExpandInput) (*v1.Volume, error) {
	return call[v1.Volume](ctx, c, http.MethodPost, action("volumes", name, "expand"), in)
}

// CancelExpansion cancels an expansion that has not started. ErrConflict: it has started, or there is none.
func (c *Client) CancelExpansion(ctx context.Context, name string) (*v1.Volume, error) {
	return call[v1.Volume](ctx, c, http.MethodPost, action("volumes", name, "cancelExpansion"), nil)
}

// Snapshots lists the snapshots of a volume, the oldest first. They include snapshots that are not complete, and deleted
// ones whose space is not free yet. ErrNotFound: no volume has that name.
func (c *Client) Snapshots(ctx context.Context, volume string) ([]v1.SnapshotCR, error) {
	found, err := call[v1.Collection[v1.SnapshotCR]](ctx, c, http.MethodPost, action("volumes", volume, "snapshotCRList"), v1.Empty{})
	if err != nil {
		return nil, err
	}
	return found.Data, nil
}

// Snapshot returns a snapshot of a volume; ErrNotFound if the volume has no snapshot with that name.
func (c *Client) Snapshot(ctx context.Context, volume, name string) (*v1.SnapshotCR, error) {
	return call[v1.SnapshotCR](ctx, c, http.MethodPost, action("volumes", volume, "snapshotCRGet"), v1.SnapshotCRInput{Name: name})
}

// CreateSnapshot requests a snapshot and does not wait until it is complete. ErrConflict: the name is in use, or no
// snapshot of the volume is possible now. ErrInvalid: the name or a label breaks a rule.
func (c *Client) CreateSnapshot(ctx context.Context, volume string, in v1.SnapshotCRInput) (*v1.SnapshotCR, error) {
	return call[v1.SnapshotCR](ctx, c, http.MethodPost, action("volumes", volume, "snapshotCRCreate"), in)
}

// DeleteSnapshot requests the deletion of a snapshot and does not wait for it. It may be repeated: a missing snapshot is
// not an error. ErrNotFound: no volume has that name.
func (c *Client) DeleteSnapshot(ctx context.Context, volume, name string) error {
	_, err := call[v1.Empty](ctx, c, http.MethodPost, action("volumes", volume, "snapshotCRDelete"), v1.SnapshotCRInput{Name: name})
	return err
}

// RevertSnapshot makes a detached volume return to a snapshot. All that was written since then is lost. ErrConflict: the
// volume is not detached, or later snapshots exist.
func (c *Client) RevertSnapshot(ctx context.Context, volume, name string) (*v1.Snapshot, error) {
	return call[v1.Snapshot](ctx, c, http.MethodPost, action("volumes", volume, "snapshotRevert"), v1.SnapshotInput{Name: name})
}

// Nodes lists all nodes, sorted by name.
func (c *Client) Nodes(ctx context.Context) ([]v1.Node, error) {
	return list[v1.Node](ctx, c, "/nodes")
}

// Node returns a node; ErrNotFound if no node has that name.
func (c *Client) Node(ctx context.Context, name string) (*v1.Node, error) {
	return call[v1.Node](ctx, c, http.MethodGet, item("nodes", name), nil)
}

// Capacity returns the largest size that a new volume could have now; the query has the parameters of
// v1.StorageCapacity.
func (c *Client) Capacity(ctx context.Context, query url.Values) (*v1.StorageCapacity, error) {
	return call[v1.StorageCapacity](ctx, c, http.MethodGet, "/storagecapacities?"+query.Encode(), nil)
}

// Settings lists all settings, sorted by name.
func (c *Client) Settings(ctx context.Context) ([]v1.Setting, error) {
	return list[v1.Setting](ctx, c, "/settings")
}

// Setting returns a setting; ErrNotFound if no setting has that name.
func (c *Client) Setting(ctx context.Context, name string) (*v1.Setting, error) {
	return call[v1.Setting](ctx, c, http.MethodGet, item("settings", name), nil)
}

// UpdateSetting sets the value of a setting; an empty value means the default.
func (c *Client) UpdateSetting(ctx context.Context, name, value string) (*v1.Setting, error) {
	wanted := v1.SettingValue(value)
	return call[v1.Setting](ctx, c, http.MethodPut, item("settings", name), v1.SettingUpdate{Value: &wanted})
}

// item returns the path of one resource; empty for a name that would turn it into the path of something else.
func item(plural, name string) string {
	if name == "" || name == "." || name == ".." {
		return ""
	}
	return "/" + plural + "/" + url.PathEscape(name)
}

func action(plural, name, action string) string {
	if path := item(plural, name); path != "" {
		return path + "?action=" + action
	}
	return ""
}

func list[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	collection, err := call[v1.Collection[T]](ctx, c, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	return collection.Data, nil
}

// call sends one request. An empty response leaves the result empty.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if path == "" {
		return nil, &Error{Request: method, Status: http.StatusNotFound, Message: "no object can have this name"}
	}
	what := method + " " + c.base + path
	request, err := newRequest(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, &Unreachable{Request: what, Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, &Unreachable{Request: what, Err: fmt.Errorf("read the response: %w", err)}
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, newError(what, response.StatusCode, data)
	}
	result := new(T)
	if len(bytes.TrimSpace(data)) == 0 {
		return result, nil
	}
	if err := json.Unmarshal(data, result); err != nil {
		return nil, &Unreachable{Request: what, Err: fmt.Errorf("decode the response: %w", err)}
	}
	return result, nil
}

func newRequest(ctx context.Context, method, target string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}
