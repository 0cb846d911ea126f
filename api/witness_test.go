package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/manager"
)

// reacher answers as the test sets it up.
type reacher struct {
	asked   []string
	reaches bool
	err     error
}

func (r *reacher) Reaches(_ context.Context, node string) (bool, error) {
	r.asked = append(r.asked, node)
	return r.reaches, r.err
}

// TestAWitnessSaysWhetherItReachesANode: the witness requires the right to update that node, and uses no address of the
// request.
func TestAWitnessSaysWhetherItReachesANode(t *testing.T) {
	log := newBench(t).Log
	for name, c := range map[string]struct {
		reacher reacher
		token   string
		as      string // the node whose daemon answers
		want    bool
		err     string
		asked   []string
	}{
		"it does":                   {reacher{reaches: true}, "admin", "witness", true, "", []string{"silent"}},
		"it does not":               {reacher{}, "admin", "witness", false, "", []string{"silent"}},
		"it cannot find out":        {reacher{reaches: true, err: errBehindTheScenes}, "admin", "witness", false, `answered with status 500 as node "witness"`, []string{"silent"}},
		"it knows no such node":     {reacher{err: &manager.Problem{Class: manager.ErrNotFound, Text: "no"}}, "admin", "witness", false, `answered with status 404 as node "witness"`, []string{"silent"}},
		"no right":                  {reacher{reaches: true}, "reader", "witness", false, `answered with status 403 as node "witness"`, nil},
		"a token that is not good":  {reacher{reaches: true}, "stolen", "witness", false, `answered with status 401 as node "witness"`, nil},
		"it cannot check the token": {reacher{reaches: true}, "unavailable", "witness", false, `answered with status 503 as node "witness"`, nil},
		"the address is another's":  {reacher{reaches: true}, "admin", "another", false, `answered with status 421 as node "another"`, nil},
		"the name of no object":     {reacher{reaches: true}, "admin", "witness", false, `answered with status 404 as node "witness"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, access := c.reacher, &accessOf{}
			guard := NewGuard(access, never, NewNodeHandler(c.as, NodeDeps{Reacher: &r, Log: log}), log)
			peers := peersOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.True(t, IsForNode(r))
				MarkNode(w, c.as)
				guard.ServeHTTP(w, r)
			}))
			node := "silent"
			if name == "the name of no object" {
				node = "../silent"
			}
			reaches, err := peers.Reaches(t.Context(), "witness", "192.0.2.1", c.token, node)
			assert.Equal(t, c.want, reaches)
			assert.Equal(t, c.asked, r.asked)
			require.NotErrorIs(t, err, ErrEarlierRelease)
			if c.err == "" {
				require.NoError(t, err)
				assert.Equal(t, []Attributes{{Verb: "update", Resource: "nodes", Name: "silent"}}, access.asked)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
}

// TestADaemonOfAnEarlierReleaseIsNoWitness: the daemon treats the request as one that was passed on to it as the
// leader.
func TestADaemonOfAnEarlierReleaseIsNoWitness(t *testing.T) {
	notLeading := follower(t, "")
	peers := peersOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(nodeHeader) // an earlier release does not know the action, and so ignores it
		notLeading.ServeHTTP(w, r)
	}))
	_, err := peers.Reaches(t.Context(), "witness", "192.0.2.1", "admin", "silent")
	require.ErrorIs(t, err, ErrEarlierRelease)

	for name, answer := range map[string]http.HandlerFunc{
		"too many requests": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"cut off":           func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no answer in it":   func(w http.ResponseWriter, _ *http.Request) { MarkNode(w, "witness"); _, _ = w.Write([]byte("{}")) },
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			MarkNode(w, "witness")
			_, _ = w.Write([]byte("reached"))
		},
		"another's answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"reached": false}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := peersOf(t, answer).Reaches(t.Context(), "witness", "192.0.2.1", "admin", "silent")
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrEarlierRelease)
		})
	}
}

// TestAReachRequestIsAnsweredOnItsNode: only this path and action are answered there.
func TestAReachRequestIsAnsweredOnItsNode(t *testing.T) {
	assert.Equal(t, "local", do(t, follower(t, ""), "POST", "/v1/nodes/silent?action=reach", "", nodeHeader+": witness").Body.String())
	assert.Equal(t, 503, do(t, follower(t, ""), "POST", "/v1/nodes/silent?action=reach", "").Code, "without the header it is the leader's, of whom there is none")
	r, tr := &reacher{}, &trimmer{}
	h := NewNodeHandler("witness", NodeDeps{Reacher: r, Trimmer: tr, Log: newBench(t).Log})
	for _, path := range []string{"/v1/volumes/silent?action=reach", "/v1/nodes?action=reach", "/v1/nodes/a%2fb?action=reach", "/v1/nodes/silent/x?action=reach"} {
		w := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, path, nil)
		request.Header.Set(nodeHeader, "witness")
		h.ServeHTTP(w, request)
		assert.Equal(t, 404, w.Code, path)
	}
	assert.Empty(t, r.asked)
	assert.Empty(t, tr.asked)
}
