package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// Query parameters that clients of Longhorn may send with any request to read. The answer does not depend on them:
// collections are complete and sorted, and a cache buster only creates a URL that no cache has.
var readParameters = []string{"_", "include", "limit", "marker", "order", "sort"}

// parameterAction chooses the action of a POST.
const parameterAction = "action"

// parameters returns the query parameters that a route has, sorted; false: its own code checks them.
func (r Route) parameters() ([]string, bool) {
	switch {
	case r.Path == pathCapacities:
		return nil, false
	case r.IsStream:
		return []string{"_", queryHeartbeat}, true
	case r.Method == http.MethodGet:
		return readParameters, true
	case r.Action != "":
		return []string{"_", parameterAction, v1.ParamIfSpecVersion}, true
	case r.Method == http.MethodPut:
		return []string{"_", v1.ParamIfSpecVersion}, true
	}
	return []string{"_"}, true
}

// checkQuery refuses the first query parameter, in order, that the route does not have. The parameter may be a typing
// error. If it were ignored, the request would mean something else: without ifSpecVersion, it would change any version
// of the spec.
func checkQuery(route Route, r *http.Request) error {
	known, isChecked := route.parameters()
	if !isChecked {
		return nil
	}
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &refusal{http.StatusBadRequest, fmt.Sprintf("the query of the request is not valid: %.200s", err)}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			return &refusal{http.StatusBadRequest, fmt.Sprintf("%.100q is not a query parameter of this request; its parameters are %s", name, strings.Join(known, ", "))}
		}
	}
	return nil
}
