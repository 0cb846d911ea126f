package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

func TestUnknownQueryParametersAreRefused(t *testing.T) {
	const read = "its parameters are _, include, limit, marker, order, sort"
	for _, c := range []struct{ name, method, path, text string }{
		{"a list, a filter → refused", "GET", "/v1/volumes?state=attached", `"state" is not a query parameter of this request; ` + read},
		{"a list, what clients of Longhorn send → accepted", "GET", "/v1/volumes?sort=name&order=asc&limit=1000&marker=x&include=a&_=1732", ""},
		{"a resource, a typing error → refused", "GET", "/v1/volumes/vol?inlcude=x", `"inlcude" is not a query parameter of this request; ` + read},
		{"a resource, a cache buster → accepted", "GET", "/v1/volumes/vol?_=1", ""},
		{"the schemas, a typing error → refused", "GET", "/v1/schemas?srot=id", `"srot" is not a query parameter of this request; ` + read},
		{"the versions, a cache buster → accepted", "GET", "/v1?_=1", ""},
		{"a change, a typing error → refused", "PUT", "/v1/nodes/node-1?ifSpecVersoin=3", `"ifSpecVersoin" is not a query parameter of this request; its parameters are _, ifSpecVersion`},
		{"a change, in other capitals → refused", "PUT", "/v1/nodes/node-1?ifspecversion=3", `"ifspecversion" is not a query parameter of this request; its parameters are _, ifSpecVersion`},
		{"an action, a typing error → refused", "POST", "/v1/nodes/node-1?action=diskUpdate&ifSpecVersoin=3", `"ifSpecVersoin" is not a query parameter of this request; its parameters are _, action, ifSpecVersion`},
		{"a creation, a parameter → refused", "POST", "/v1/volumes?dryRun=true", `"dryRun" is not a query parameter of this request; its parameters are _`},
		{"a deletion, a parameter → refused", "DELETE", "/v1/volumes/vol?force=true", `"force" is not a query parameter of this request; its parameters are _`},
		{"a stream, a typing error → refused", "GET", "/v1/ws/volumes?hartbeat=true", `"hartbeat" is not a query parameter of this request; its parameters are _, heartbeat`},
		{"a query that cannot be read → refused", "GET", "/v1/volumes?a=%zz", `the query of the request is not valid: invalid URL escape "%zz"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, append(threeNodes(), detached("vol"))...)
			w := do(t, b.server, c.method, c.path, "{}")
			if c.text == "" {
				assert.Equal(t, http.StatusOK, w.Code, w.Body)
				return
			}
			assert.Equal(t, http.StatusBadRequest, w.Code, w.Body)
			assert.Equal(t, c.text, decoded[v1.Error](t, w).Message)
			b.ExpectWrites()
		})
	}
}

func TestEachRouteListsItsQueryParameters(t *testing.T) {
	for _, route := range newBench(t).server.Routes() {
		known, isChecked := route.parameters()
		if !isChecked {
			assert.Equal(t, pathCapacities, route.Path, "only this path checks its parameters itself")
			continue
		}
		assert.Contains(t, known, "_", "%s %s", route.Method, route.Path)
		assert.Equal(t, route.Action != "", strings.Contains(strings.Join(known, " "), parameterAction), "%s %s", route.Method, route.Path)
	}
}
