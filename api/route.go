package api

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// The verbs of routes, as Kubernetes names them.
const (
	VerbList   = "list"
	VerbGet    = "get"
	VerbCreate = "create"
	VerbUpdate = "update"
	VerbDelete = "delete"
)

// Route is one request that clients may send. All requests that the server answers with more than a refusal have a
// Route, except /metrics and /healthz.
type Route struct {
	// Method is an HTTP method; HEAD has the route of GET.
	Method string
	// Path is a pattern of net/http; {id} stands for the name of a resource.
	Path string
	// Resource is the plural of the kind that the request is about, in lower case, as in Kubernetes. Empty: versions
	// and schemas, which are the same for all kinds.
	Resource string
	// Verb is one of the constants above. An action has VerbUpdate.
	Verb string
	// Action is the value of the query parameter "action"; empty: the request has none.
	Action string
	// IsStream: the answer is a websocket.
	IsStream bool

	answer func(*http.Request) (reply, error)
}

// Routes returns all routes, in the order of the table of kinds.
func (s *Server) Routes() []Route { return slices.Clone(s.table) }

// RouteOf returns the route of a request, and false for a request that the server refuses by its path, method or
// action.
func (s *Server) RouteOf(r *http.Request) (Route, bool) {
	_, pattern := s.api.Handler(r)
	route, err := pickRoute(s.routesAt(pattern), r)
	return route, err == nil
}

func (s *Server) routesAt(pattern string) []Route {
	var routes []Route
	for _, route := range s.table {
		if route.Path == pattern {
			routes = append(routes, route)
		}
	}
	return routes
}

// pickRoute finds the route of a request among the routes of its path.
func pickRoute(routes []Route, r *http.Request) (Route, error) {
	method := r.Method
	if isSafe(method) {
		method = http.MethodGet
	}
	methodErr := &methodError{method: r.Method}
	var actions []string
	for _, route := range routes {
		if !slices.Contains(methodErr.allowed, route.Method) {
			methodErr.allowed = append(methodErr.allowed, route.Method)
		}
		switch {
		case route.Method != method:
		case route.Action == "" || route.Action == r.URL.Query().Get("action"):
			return route, nil
		default:
			actions = append(actions, route.Action)
		}
	}
	if len(actions) > 0 {
		return Route{}, &manager.Invalid{Field: "action", Value: r.URL.Query().Get("action"), Rule: "must be one of " + strings.Join(actions, ", ")}
	}
	return Route{}, methodErr
}

// routes returns the routes of versions and schemas, then the routes of the kinds, then the streams of the kinds.
func (s *Server) routes() []Route {
	get := func(path, verb string, answer func(*http.Request) (reply, error)) Route {
		return Route{Method: http.MethodGet, Path: path, Verb: verb, answer: answer}
	}
	routes := []Route{
		get("/{$}", VerbList, s.listVersions),
		get("/v1/apiversions", VerbList, s.listVersions),
		get("/v1/apiversions/v1", VerbGet, s.getVersion),
		get("/v1", VerbGet, s.getVersion),
		get("/v1/{$}", VerbGet, s.getVersion),
		get("/v1/schemas", VerbList, s.listSchemas),
		get("/v1/schemas/{id}", VerbGet, s.getSchema),
	}
	for i := range s.kinds {
		routes = append(routes, s.kinds[i].routes()...)
	}
	for i := range s.kinds {
		k := &s.kinds[i]
		answer, right := s.streams.of(k), ofKind(Attributes{Verb: VerbList, Resource: k.path()})
		for _, path := range []string{pathStreams + k.path(), pathStreams + "{period}/" + k.path()} {
			routes = append(routes, Route{
				Method: http.MethodGet, Path: path, Verb: right.Verb, Resource: right.Resource, IsStream: true, answer: answer,
			})
		}
	}
	return append(routes, Route{Method: http.MethodGet, Path: pathCapacities, Resource: resourceCapacities, Verb: VerbList, answer: serveCapacity(s.manager)})
}

// routes returns the routes of all requests that clients can send for a kind.
func (k *kind) routes() []Route {
	collection, resource := "/v1/"+k.path(), "/v1/"+k.path()+"/{id}"
	routes := []Route{{Method: http.MethodGet, Path: collection, Verb: VerbList, answer: k.serveList}}
	if k.create != nil {
		routes = append(routes, Route{Method: http.MethodPost, Path: collection, Verb: VerbCreate, answer: k.serveCreate})
	}
	routes = append(routes, Route{Method: http.MethodGet, Path: resource, Verb: VerbGet, answer: k.serveGet})
	if k.update != nil {
		routes = append(routes, Route{Method: http.MethodPut, Path: resource, Verb: VerbUpdate, answer: k.serveUpdate})
	}
	if k.remove != nil {
		routes = append(routes, Route{Method: http.MethodDelete, Path: resource, Verb: VerbDelete, answer: k.serveRemove})
	}
	for _, a := range k.actions {
		routes = append(routes, Route{Method: http.MethodPost, Path: resource, Verb: VerbUpdate, Action: a.name, answer: k.serveAction(a)})
	}
	for i := range routes {
		right := ofKind(Attributes{Verb: routes[i].Verb, Resource: k.path()})
		routes[i].Resource, routes[i].Verb = right.Resource, right.Verb
	}
	return routes
}

func (k *kind) serveCreate(r *http.Request) (reply, error) {
	return k.answer(r, http.StatusCreated, func(body []byte) (v1.Object, error) { return k.create(r.Context(), body) })
}

func (k *kind) serveAction(a action) func(*http.Request) (reply, error) {
	return func(r *http.Request) (reply, error) {
		return k.answer(r, http.StatusOK, func(body []byte) (v1.Object, error) { return a.do(conditional(r), r.PathValue("id"), body) })
	}
}

// answer reads the body, calls work and links the result.
func (k *kind) answer(r *http.Request, status int, work func(body []byte) (v1.Object, error)) (reply, error) {
	body, err := io.ReadAll(r.Body)
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return reply{}, &refusal{http.StatusRequestEntityTooLarge, "the body must be at most 1 MiB long"}
	}
	if err != nil {
		return reply{}, &refusal{http.StatusBadRequest, "the body could not be read to its end"}
	}
	object, err := work(body)
	if err != nil {
		return reply{}, err
	}
	if o, ok := object.(ownAnswer); ok {
		return o.write(baseURL(r)), nil
	}
	if u, ok := object.(unfinished); ok {
		object, status = u.Object, http.StatusAccepted
	}
	k.link(baseURL(r), object)
	return reply{status, object}, nil
}

// unfinished is the answer of an action that continues after the answer.
type unfinished struct{ v1.Object }

// ownAnswer is the answer of an action with another content than the resource of the action. write returns the answer
// with its links.
type ownAnswer struct {
	v1.Object // nil
	write     func(base string) reply
}

func (k *kind) serveList(r *http.Request) (reply, error) {
	objects, err := k.list(r.Context())
	if err != nil {
		return reply{}, err
	}
	return reply{http.StatusOK, k.collection(baseURL(r), objects)}, nil
}

func (k *kind) serveGet(r *http.Request) (reply, error) {
	return k.answer(r, http.StatusOK, func([]byte) (v1.Object, error) { return k.get(r.Context(), r.PathValue("id")) })
}

func (k *kind) serveUpdate(r *http.Request) (reply, error) {
	return k.answer(r, http.StatusOK, func(body []byte) (v1.Object, error) { return k.update(conditional(r), r.PathValue("id"), body) })
}

func (k *kind) serveRemove(r *http.Request) (reply, error) {
	return reply{status: http.StatusNoContent}, k.remove(r.Context(), r.PathValue("id"))
}
