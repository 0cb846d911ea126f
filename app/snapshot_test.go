package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// withWrites serves lists, single objects, and records the other requests.
type withWrites struct {
	lists
	writes []string
}

func (s *withWrites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		body, _ := io.ReadAll(r.Body)
		s.writes = append(s.writes, r.Method+" "+strings.Join(parts[5:], "/"))
		if r.Method == http.MethodDelete {
			body = []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		}
		_, _ = w.Write(body)
		return
	}
	if len(parts) > 6 { // apis/longhorn.io/v1beta2/namespaces/NS/KIND/NAME
		for _, o := range s.lists[parts[5]+".longhorn.io"] {
			if o.(metav1.Object).GetName() == parts[6] {
				_ = json.NewEncoder(w).Encode(o)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	s.lists.ServeHTTP(w, r)
}

// snapshotShop has volume w of claim shop/paid, with snapshots.
func snapshotShop(t *testing.T) (config string, s *withWrites) {
	t.Helper()
	v := build.Volume("w", func(v *longhorn.Volume) {
		v.Status.State = longhorn.VolumeStateDetached
		v.Status.KubernetesStatus = longhorn.KubernetesStatus{Namespace: "shop", PVCName: "paid", PVName: "w", PVStatus: "Bound"}
	})
	taken := &longhorn.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "nightly"},
		Spec:       longhorn.SnapshotSpec{Volume: "w", Labels: map[string]longhorn.SnapshotLabel{"app": "db"}},
		Status:     longhorn.SnapshotStatus{Number: 1, ReadyToUse: true, CreationTime: "2030-01-01T00:00:00Z", Size: 4096},
	}
	s = &withWrites{lists: lists{"volumes.longhorn.io": {v}, "snapshots.longhorn.io": {taken}, "nodes.longhorn.io": {build.ReadyNode("n1", "u")}}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return kubeconfig(t, server.URL, nil), s
}

func TestSnapshotCommands(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		out    string // a part of the output
		err    string // a part of the error
		writes []string
	}{
		{args: []string{"list", "shop/paid"}, out: "nightly    ready   2030-01-01T00:00:00Z   4 KiB   app=db"},
		{args: []string{"list", "w", "-o", "json"}, out: `"name": "nightly"`},
		{args: []string{"list", "shop/piad"}, err: `volume "shop/piad" does not exist; did you mean "shop/paid"?`},
		{args: []string{"list"}, err: "snapshot list needs VOLUME; it got 0 arguments"},
		{args: []string{"create", "shop/paid", "s2", "--label", "app=db"}, out: "snapshot s2 requested", writes: []string{"POST snapshots"}},
		{args: []string{"create", "w", "S2"}, err: `name: "S2" must consist of lower-case letters`},
		{args: []string{"delete", "w", "nightly"}, out: "snapshot nightly deleted", writes: []string{"DELETE snapshots/nightly"}},
		{args: []string{"delete", "w", "nigthly"}, err: `snapshot "nigthly" does not exist; did you mean "nightly"?`},
		{args: []string{"revert", "w", "nightly"}, err: "all data that was written to volume w since snapshot nightly (2030-01-01T00:00:00Z) would be lost; repeat the command with --yes to confirm"},
		{args: []string{"revert", "w", "nightly", "--yes"}, err: "failed to revert snapshot for volume w: no record of its snapshots exists"},
		{args: []string{"lsit"}, err: `snapshot: "lsit" is not known; did you mean "list"?`},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			config, s := snapshotShop(t)
			c := plugin()
			var out strings.Builder
			c.Writer = &out
			args := append([]string{pluginName, "snapshot"}, tc.args...)
			if tc.args[0] != "lsit" {
				args = append(args, "--kubeconfig", config)
			}
			err := c.Run(t.Context(), args)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
			} else {
				require.NoError(t, err)
				assert.Contains(t, out.String(), tc.out)
			}
			assert.Equal(t, tc.writes, s.writes)
		})
	}
}
