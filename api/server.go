// Package api serves the REST API: it decodes requests, calls package manager, and answers in the envelope that
// Longhorn's clients know. It owns routes, links, schemas, and the status of each error. It must not know objects of
// the API server, caches or controllers.
//
// Everything about a type of resource is defined once, in the table of kinds (kinds.go): its routes, methods, actions,
// links and schema come from this table, so the API advertises nothing that does not exist. The table of routes
// (route.go) has the verb and the resource of each request, so that a handler in front can decide which clients may
// send it.
//
//	client ──► any daemon ──► Forwarder ──► leader ──► Server ──► manager.Manager
//	                              └── /metrics, /healthz, requests of the leader to a node (nodelocal.go): answered here
package api

import (
	"errors"
	"io"
	"net/http"

	"github.com/sirupsen/logrus"

	"k8s.io/utils/clock"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// maxBody is the longest request body that is accepted, in bytes.
const maxBody = 1 << 20

// The paths that every daemon answers itself, without the leader.
const (
	pathMetrics = "/metrics"
	pathHealthz = "/healthz"
)

// Deps are the dependencies of a Server.
type Deps struct {
	Manager *manager.Manager
	// Metrics serves GET /metrics; nil: there is no such path.
	Metrics http.Handler
	// GET /healthz calls Healthy; nil: always healthy.
	Healthy func() error
	// Clock is the clock of streams; nil: the real one.
	Clock clock.Clock
	Log   *logrus.Entry
}

// Server is the REST API of a daemon that sees the whole cluster.
type Server struct {
	log     *logrus.Entry
	manager *manager.Manager
	kinds   []kind
	schemas []v1.Schema // without links
	table   []Route
	api     *http.ServeMux // for the routes of the table
	mux     *http.ServeMux
	streams *streams
}

// NewServer returns the handler of all paths.
func NewServer(d Deps) *Server {
	if d.Clock == nil {
		d.Clock = clock.RealClock{}
	}
	s := &Server{log: d.Log, manager: d.Manager, kinds: kindsOf(d.Manager), mux: http.NewServeMux(), streams: newStreams(d)}
	s.schemas = schemasOf(s.kinds)
	// A page of another site must not make a visitor's browser change anything here.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(s.handle(func(*http.Request) (reply, error) {
		return reply{}, errOtherOrigin
	}))
	s.table = s.routes()
	s.api = s.handler()
	s.mux.Handle("/", s.atManagerURL(guard.Handler(s.api)))
	s.mux.HandleFunc(pathHealthz, healthz(d.Healthy))
	if d.Metrics != nil {
		s.mux.Handle("GET "+pathMetrics, d.Metrics)
	}
	return s
}

// Close ends the streams and returns when they have ended. It may be called more than once; later requests for streams
// are refused.
func (s *Server) Close() { s.streams.close() }

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// atManagerURL makes links start with the setting manager-url, if it is set.
func (s *Server) atManagerURL(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u := s.manager.ManagerURL(); u != "" {
			r = r.Clone(r.Context())
			r.Header.Set(headerRequestURL, u)
		}
		next.ServeHTTP(w, r)
	})
}

// handler returns a handler that answers the requests of the routes, and refuses all others.
func (s *Server) handler() *http.ServeMux {
	mux := http.NewServeMux()
	isHandled := map[string]bool{}
	for _, route := range s.table {
		if isHandled[route.Path] {
			continue
		}
		isHandled[route.Path] = true
		routes := s.routesAt(route.Path)
		mux.HandleFunc(route.Path, s.handle(func(r *http.Request) (reply, error) {
			route, err := pickRoute(routes, r)
			if err != nil {
				return reply{}, err
			}
			if err := checkQuery(route, r); err != nil {
				return reply{}, err
			}
			return route.answer(r)
		}))
	}
	mux.HandleFunc("/", s.handle(func(r *http.Request) (reply, error) {
		return reply{}, &refusal{http.StatusNotFound, "the API has no path " + r.URL.Path}
	}))
	return mux
}

// reply is a response that is not an error. A nil body is sent as no body; a body that is an http.HandlerFunc writes
// the response itself.
type reply struct {
	status int
	body   any
}

// handle returns the handler for a function that returns a reply or an error.
func (s *Server) handle(answer func(*http.Request) (reply, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		result, err := answer(r)
		if err != nil {
			wire := errorOf(err)
			if wire.Status >= 500 {
				s.entry(r, wire.Status).WithError(err).Error("request failed")
			}
			result = reply{wire.Status, wire}
			var methodErr *methodError
			if errors.As(err, &methodErr) {
				w.Header().Set("Allow", methodErr.allow())
			}
		}
		if serveResponse, ok := result.body.(http.HandlerFunc); ok && err == nil {
			serveResponse(w, r)
			return
		}
		if !isSafe(r.Method) && result.status < 500 {
			s.entry(r, result.status).Info("request answered")
		}
		if err := write(w, r, result); err != nil {
			s.entry(r, result.status).WithError(err).Debug("the response could not be delivered")
		}
	}
}

func (s *Server) entry(r *http.Request, status int) *logrus.Entry {
	return s.log.WithFields(logrus.Fields{
		"method": r.Method, "path": r.URL.Path, "action": r.URL.Query().Get("action"), "status": status, "user": userOf(r),
	})
}

func isSafe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func healthz(healthy func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if healthy != nil {
			if err := healthy(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, err.Error()+"\n")
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	}
}
