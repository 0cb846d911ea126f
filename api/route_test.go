package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRouteOf(t *testing.T) {
	b := newBench(t)
	cases := map[string]string{ // request → verb, resource and action; "": the server refuses it
		"GET /":                              "list",
		"GET /v1":                            "get",
		"GET /v1/schemas":                    "list",
		"GET /v1/schemas/volume":             "get",
		"GET /v1/volumes":                    "list volumes",
		"HEAD /v1/volumes":                   "list volumes",
		"GET /v1/volumes/a?action=attach":    "get volumes",
		"POST /v1/volumes":                   "create volumes",
		"DELETE /v1/volumes/a%2fb":           "delete volumes",
		"POST /v1/volumes/a?action=attach":   "update volumes attach",
		"PUT /v1/nodes/node-1":               "update nodes",
		"POST /v1/nodes/n?action=diskUpdate": "update nodes diskUpdate",
		"PUT /v1/settings/log-level":         "update settings",
		"GET /v1/volumeattachments":          "list volumeattachments",
		"GET /v1/storagecapacities?node=n":   "list storagecapacities",
		"POST /v1/storagecapacities":         "",
		"GET /v1/ws/volumes":                 "list volumes",
		"GET /v1/ws/5s/nodes":                "list nodes",
		"GET /v1/findings":                   "list volumes",
		"GET /v1/ws/findings":                "list volumes",
		"GET /v1/ws/nix":                     "",
		"GET /v1/ws":                         "",
		"GET /v1/ws/5s/nodes/a":              "",
		"POST /v1/ws/volumes":                "",
		"POST /v1/volumes/a?action=explode":  "",
		"POST /v1/volumes/a":                 "",
		"PATCH /v1/volumes/a":                "",
		"DELETE /v1/volumes":                 "",
		"GET /v1/nix":                        "",
		"GET /v1/volumes/a/b":                "",
	}
	for request, want := range cases {
		t.Run(request, func(t *testing.T) {
			method, path, _ := strings.Cut(request, " ")
			route, ok := b.server.RouteOf(httptest.NewRequestWithContext(t.Context(), method, path, nil))
			assert.Equal(t, want != "", ok)
			assert.Equal(t, want, strings.TrimSpace(strings.Join([]string{route.Verb, route.Resource, route.Action}, " ")))
		})
	}
}

// TestEveryRouteIsAnswered: no route of the table is refused for its path or method, and no two routes are the same.
func TestEveryRouteIsAnswered(t *testing.T) {
	b := newBench(t)
	seen := map[string]bool{}
	for _, route := range b.server.Routes() {
		path := strings.NewReplacer("{id}", "nix", "{$}", "", "{period}", "1s").Replace(route.Path)
		if route.Action != "" {
			path += "?action=" + route.Action
		}
		request := route.Method + " " + path
		require.False(t, seen[request], "%s is there twice", request)
		seen[request] = true
		w := do(t, b.server, route.Method, path, "")
		assert.NotEqual(t, 405, w.Code, request)
		assert.NotContains(t, w.Body.String(), "the API has no path", request)
		got, ok := b.server.RouteOf(httptest.NewRequestWithContext(t.Context(), route.Method, path, nil))
		assert.True(t, ok, request)
		assert.Equal(t, route.Path+" "+route.Verb+" "+route.Action, got.Path+" "+got.Verb+" "+got.Action, request)
	}
}

// TestTheGuardAsksForTheRightOfTheRoute: a Guard is also in front of daemons that know no routes, so it reads the path
// itself. It must require the same right as the table.
func TestTheGuardAsksForTheRightOfTheRoute(t *testing.T) {
	b := newBench(t)
	for _, route := range b.server.Routes() {
		path := strings.NewReplacer("{id}", "nix", "{$}", "", "{period}", "1s").Replace(route.Path)
		if route.Action != "" {
			path += "?action=" + route.Action
		}
		got := attributesOf(httptest.NewRequestWithContext(t.Context(), route.Method, path, nil))
		assert.Equal(t, route.Resource, got.Resource, "%s %s", route.Method, path)
		if route.Resource != "" {
			assert.Equal(t, route.Verb, got.Verb, "%s %s", route.Method, path)
		}
	}
}
