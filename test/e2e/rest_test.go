package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// restAPI is the REST API as a user's program reaches it, through its Service.
type restAPI struct {
	base string
	http *http.Client
}

func restOf(ctx context.Context, t *testing.T, c *cluster.Cluster) restAPI {
	t.Helper()
	address, err := c.Devcluster(ctx, "forward", fmt.Sprintf("%s/%s:%d", types.Namespace, types.APIService, types.APIPort))
	require.NoError(t, err)
	return restAPI{"https://" + address + "/v1", restClient(ctx, t, c)}
}

// do sends a request, checks the status of the answer, and decodes the answer into out, if out is given.
func (r restAPI) do(ctx context.Context, t *testing.T, method, path string, body any, want int, out any) string {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	var status int
	var answer []byte
	// A Service sends requests to the pods of a node that is gone until Kubernetes has noticed. While the leader
	// changes, a daemon has no leader to which it can pass requests. All requests of these tests may be repeated.
	cluster.Eventually(ctx, t, 30*time.Second, method+" "+path+" is answered", func(ctx context.Context) (err error) {
		status, answer, err = r.once(ctx, method, path, text)
		if err == nil && isPassing(status) && status != want {
			err = fmt.Errorf("the answer is %d: %s", status, answer)
		}
		return err
	})
	require.Equal(t, want, status, "%s %s: %s", method, path, answer)
	if out != nil {
		require.NoError(t, json.Unmarshal(answer, out), "%s %s answers %q", method, path, answer)
	}
	return string(answer)
}

// once sends a request. An error means that no answer came.
func (r restAPI) once(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// isPassing reports whether a status says that there is no leader at the moment (503), or that the leader did not
// answer (502).
func isPassing(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusBadGateway
}

// TestRESTIsAskedAgain: while the leader changes, a test's request is repeated. A refused request is not.
func TestRESTIsAskedAgain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers []int // in turn
		want    int   // the status that the caller wants
	}{
		{"no leader, then one that does not answer, then one that does → its answer", []int{503, 502, 200}, 200},
		{"no leader, as the caller wants → that answer", []int{503}, 503},
		{"a refusal that the caller wants → not asked again", []int{422}, 422},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tc.answers[asked])
				fmt.Fprintf(w, "answer %d to %s", asked, r.URL.Path)
				asked++
			}))
			defer server.Close()
			got := restAPI{server.URL + "/v1", server.Client()}.do(t.Context(), t, http.MethodGet, "/volumes", nil, tc.want, nil)
			assert.Equal(t, fmt.Sprintf("answer %d to /v1/volumes", len(tc.answers)-1), got)
		})
	}
}

func (r restAPI) node(ctx context.Context, t *testing.T, name string) (n v1.Node) {
	t.Helper()
	r.do(ctx, t, http.MethodGet, "/nodes/"+name, nil, http.StatusOK, &n)
	return n
}

// setDisks replaces all disks of a node.
func (r restAPI) setDisks(ctx context.Context, t *testing.T, node string, disks map[string]v1.DiskUpdate) {
	t.Helper()
	r.do(ctx, t, http.MethodPost, "/nodes/"+node+"?action=diskUpdate", v1.DiskUpdateInput{Disks: disks}, http.StatusOK, nil)
}

// addDisk adds a disk to a node.
func (r restAPI) addDisk(ctx context.Context, t *testing.T, node, name string, disk v1.DiskUpdate) {
	t.Helper()
	disks := r.disks(ctx, t, node)
	disks[name] = disk
	r.setDisks(ctx, t, node, disks)
}

// removeDisk removes a disk as users have to: it disables scheduling on the disk first.
func (r restAPI) removeDisk(ctx context.Context, t *testing.T, node, name string) {
	t.Helper()
	disks := r.disks(ctx, t, node)
	disk, there := disks[name]
	if !there {
		return
	}
	disk.AllowScheduling = false
	disks[name] = disk
	r.setDisks(ctx, t, node, disks)
	delete(disks, name)
	body, err := json.Marshal(v1.DiskUpdateInput{Disks: disks})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(ctx, t, 45*time.Second, "disk "+name+" is taken from "+node, func(ctx context.Context) error {
		// The request is refused until the node has seen that the replicas of a deleted volume are gone.
		status, answer, err := r.once(ctx, http.MethodPost, "/nodes/"+node+"?action=diskUpdate", body)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("the answer is %d: %s", status, answer)
		}
		return err
	})
}

// deleteDetached deletes a volume as soon as it is detached.
func (r restAPI) deleteDetached(ctx context.Context, t *testing.T, volume string) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "volume "+volume+" is detached and may be deleted", func(ctx context.Context) error {
		status, answer, err := r.once(ctx, http.MethodDelete, "/volumes/"+volume, nil)
		if err == nil && status != http.StatusNoContent && status != http.StatusNotFound {
			err = fmt.Errorf("status %d: %s", status, answer)
		}
		return err
	})
}

// removeEmptiedDisk waits until the Node's status shows that the deleted replicas are gone, and removes the disk.
func (r restAPI) removeEmptiedDisk(ctx context.Context, t *testing.T, node, name string) {
	t.Helper()
	ctx = context.WithoutCancel(ctx) // it is called at a test's end
	cluster.Eventually(ctx, t, time.Minute, "disk "+name+" of "+node+" is empty", func(ctx context.Context) error {
		if left := r.node(ctx, t, node).Disks[name].ScheduledReplica; len(left) > 0 {
			return fmt.Errorf("scheduled to it are %v", left)
		}
		return nil
	})
	r.removeDisk(ctx, t, node, name)
}

func (r restAPI) disks(ctx context.Context, t *testing.T, node string) map[string]v1.DiskUpdate {
	t.Helper()
	disks := map[string]v1.DiskUpdate{}
	for name, d := range r.node(ctx, t, node).Disks {
		disks[name] = d.DiskUpdate
	}
	return disks
}

func (r restAPI) setTags(ctx context.Context, t *testing.T, node string, tags ...string) {
	t.Helper()
	n := r.node(ctx, t, node)
	r.do(ctx, t, http.MethodPut, "/nodes/"+node, v1.NodeUpdate{
		AllowScheduling: n.AllowScheduling, EvictionRequested: n.EvictionRequested, Tags: append([]string{}, tags...),
	}, http.StatusOK, nil)
}

// set sets a setting to a value until the test ends.
func (r restAPI) set(ctx context.Context, t *testing.T, setting settings.Name, value string) {
	t.Helper()
	var before v1.Setting
	path := "/settings/" + string(setting)
	r.do(ctx, t, http.MethodGet, path, nil, http.StatusOK, &before)
	r.do(ctx, t, http.MethodPut, path, map[string]string{"value": value}, http.StatusOK, nil)
	t.Cleanup(func() {
		r.do(context.WithoutCancel(ctx), t, http.MethodPut, path, map[string]string{"value": before.Value}, http.StatusOK, nil)
	})
}
