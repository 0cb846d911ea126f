// Package api serves the REST API: it decodes requests, calls package manager, and
// answers in the envelope that Longhorn's clients know. It owns routes, links, schemas,
// and the status of each error. It must not know objects of the API server, caches or
// controllers.
//
// Everything about a type of resource stands once, in the table of kinds (kinds.go):
// its routes, methods, actions, links and schema all come from there, so the API
// advertises nothing that does not exist.
//
//	client ──► any daemon ──► Forwarder ──► leader ──► Server ──► manager.Manager
//	                              └── /metrics, /healthz: answered here
package api

import (
	"errors"
	"io"
	"net/http"

	"github.com/sirupsen/logrus"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// maxBody is the longest request body that is accepted, in bytes.
const maxBody = 1 << 20

// The paths that every daemon answers itself.
const (
	pathMetrics = "/metrics"
	pathHealthz = "/healthz"
)

// Deps are what a Server needs.
type Deps struct {
	Manager *manager.Manager
	// Metrics serves GET /metrics; nil: there is no such path.
	Metrics http.Handler
	// GET /healthz calls Healthy; nil: always healthy.
	Healthy func() error
	Log     *logrus.Entry
}

// Server is the REST API of a daemon that sees the whole cluster.
type Server struct {
	log     *logrus.Entry
	kinds   []kind
	schemas []v1.Schema // without links
	mux     *http.ServeMux
}

// NewServer returns the handler of all paths.
func NewServer(d Deps) *Server {
	s := &Server{log: d.Log, kinds: kindsOf(d.Manager), mux: http.NewServeMux()}
	s.schemas = schemasOf(s.kinds)
	// A page of another site must not make a visitor's browser change anything here.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(s.handle(func(*http.Request) (reply, error) {
		return reply{}, &refusal{http.StatusForbidden, "requests from pages of other origins are not accepted"}
	}))
	api := http.NewServeMux()
	s.routes(api)
	s.mux.Handle("/", guard.Handler(api))
	s.mux.HandleFunc(pathHealthz, healthz(d.Healthy))
	if d.Metrics != nil {
		s.mux.Handle("GET "+pathMetrics, d.Metrics)
	}
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) routes(mux *http.ServeMux) {
	mux.HandleFunc("/{$}", s.handle(onlyGet(s.listVersions)))
	mux.HandleFunc("/v1/apiversions", s.handle(onlyGet(s.listVersions)))
	mux.HandleFunc("/v1/apiversions/v1", s.handle(onlyGet(s.getVersion)))
	mux.HandleFunc("/v1", s.handle(onlyGet(s.getVersion)))
	mux.HandleFunc("/v1/{$}", s.handle(onlyGet(s.getVersion)))
	mux.HandleFunc("/v1/schemas", s.handle(onlyGet(s.listSchemas)))
	mux.HandleFunc("/v1/schemas/{id}", s.handle(onlyGet(s.getSchema)))
	for i := range s.kinds {
		k := &s.kinds[i]
		mux.HandleFunc("/v1/"+k.path(), s.handle(k.serveCollection))
		mux.HandleFunc("/v1/"+k.path()+"/{id}", s.handle(k.serveResource))
	}
	mux.HandleFunc("/", s.handle(func(r *http.Request) (reply, error) {
		return reply{}, &refusal{http.StatusNotFound, "there is nothing at " + r.URL.Path}
	}))
}

// reply is a response that is not an error. A nil body is sent as no body.
type reply struct {
	status int
	body   any
}

// handle makes a handler of a function that answers or fails.
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
			var wrong *methodError
			if errors.As(err, &wrong) {
				w.Header().Set("Allow", wrong.allow())
			}
		}
		if !isSafe(r.Method) && result.status < 500 {
			s.entry(r, result.status).Info("request answered")
		}
		if err := write(w, r, result); err != nil {
			s.entry(r, result.status).WithError(err).Debug("response not delivered")
		}
	}
}

func (s *Server) entry(r *http.Request, status int) *logrus.Entry {
	return s.log.WithFields(logrus.Fields{
		"method": r.Method, "path": r.URL.Path, "action": r.URL.Query().Get("action"), "status": status,
	})
}

func isSafe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// onlyGet refuses all methods but GET and HEAD.
func onlyGet(answer func(*http.Request) (reply, error)) func(*http.Request) (reply, error) {
	return func(r *http.Request) (reply, error) {
		if !isSafe(r.Method) {
			return reply{}, &methodError{method: r.Method, allowed: []string{http.MethodGet}}
		}
		return answer(r)
	}
}

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
