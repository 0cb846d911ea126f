package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Some actions need access to a volume's node. The leader checks them like all others. Then it sends the request, with
// the sender's own credential, to the daemon of that node, which answers it itself:
//
//	client ──► any daemon ──► leader: Server ──► manager ──► Peers ──► daemon of the node: Guard ──► NodeHandler
//
// The header nodeHeader names the node. It gives no right: the path is the path of the client's request, so the Guard
// requires the same right. A daemon that knows the header puts it into its answer. A daemon of an earlier release
// treats the request as one that was passed on to it as the leader, and refuses it.
const nodeHeader = "X-Longhorn-Node"

// The actions. The second does not belong to a resource of the API: only the leader requests it (witness.go).
const (
	actionTrim  = "trimFilesystem"
	actionReach = "reach"
)

// IsForNode reports whether a NodeHandler answers the request.
func IsForNode(r *http.Request) bool {
	return r.Method == http.MethodPost && r.Header.Get(nodeHeader) != "" && slices.Contains([]string{actionTrim, actionReach}, r.URL.Query().Get("action"))
}

// MarkNode marks an answer as the answer of a daemon that knows the requests of IsForNode. It must be called before a
// Guard answers, so that a refusal is not mistaken for the answer of an earlier release.
func MarkNode(w http.ResponseWriter, node string) { w.Header().Set(nodeHeader, node) }

// Trimmer trims file systems on this node. Its errors are errors of package manager.
type Trimmer interface {
	// Trim returns false without an error if the trim continues after the return. It must return within 45 s. The name
	// is valid for a volume.
	Trim(ctx context.Context, volume string) (isDone bool, err error)
}

// NodeDeps are the dependencies of a NodeHandler.
type NodeDeps struct {
	Trimmer Trimmer
	Reacher Reacher
	Log     *logrus.Entry
}

// NewNodeHandler returns a handler for the daemon of a node. It answers the requests for which IsForNode is true. A
// Guard must be in front of it.
func NewNodeHandler(node string, d NodeDeps) http.Handler {
	s := &Server{log: d.Log}
	mux := http.NewServeMux()
	trim := func(r *http.Request) (reply, error) {
		volume := r.PathValue("id")
		// such as "../sda1", which would be a device outside the directory of volumes
		if len(validation.IsDNS1123Subdomain(volume)) > 0 {
			return reply{}, &refusal{http.StatusNotFound, fmt.Sprintf("volume %.100q does not exist", volume)}
		}
		isDone, err := d.Trimmer.Trim(r.Context(), volume)
		switch {
		case err != nil:
			return reply{}, err
		case isDone:
			return reply{status: http.StatusNoContent}, nil
		}
		return reply{status: http.StatusAccepted}, nil
	}
	unknownPath := func(r *http.Request) (reply, error) {
		return reply{}, &refusal{http.StatusNotFound, "the API has no path " + r.URL.Path}
	}
	forNode := func(action string, answer func(*http.Request) (reply, error)) http.HandlerFunc {
		return s.handle(func(r *http.Request) (reply, error) {
			if named := r.Header.Get(nodeHeader); named != node {
				return reply{}, &refusal{http.StatusMisdirectedRequest, fmt.Sprintf("this is the daemon of node %q, not of node %.100q", node, named)}
			}
			if r.URL.Query().Get("action") != action {
				return unknownPath(r)
			}
			return answer(r)
		})
	}
	mux.HandleFunc("POST /v1/volumes/{id}", forNode(actionTrim, trim))
	mux.HandleFunc("POST /v1/nodes/{id}", forNode(actionReach, reachedBy(d.Reacher)))
	mux.HandleFunc("/", s.handle(unknownPath))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		MarkNode(w, node)
		mux.ServeHTTP(w, r)
	})
}

// peerTimeout bounds one request to a node's daemon. It is longer than a Trimmer takes, and shorter than a daemon waits
// for the leader.
const peerTimeout = 50 * time.Second

// Peers sends requests to the daemons of nodes for actions that only these can carry out. It implements
// manager.NodeDaemons.
type Peers struct {
	transport *client.Transport
	http      *http.Client
}

// NewPeers returns a Peers; way returns how daemons are reached and trusted. Close must be called.
func NewPeers(trust TrustSource) *Peers {
	transport := client.NewTransport(client.TransportOptions{Trust: trust, ServerName: types.APIService, Base: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     30 * time.Second,
	}})
	return &Peers{transport: transport, http: &http.Client{
		Transport: transport, Timeout: peerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (p *Peers) Close() { p.transport.CloseIdleConnections() }

// credentialKey is the key of a request's Authorization header in its context.
type credentialKey struct{}

// TrimFilesystem implements manager.NodeDaemons. The context must be the context of a client's request, and has its
// credential.
func (p *Peers) TrimFilesystem(ctx context.Context, node, address, volume string) (bool, error) {
	self := resourceURL("https://"+net.JoinHostPort(address, fmt.Sprint(types.APIPort))+"/v1", "volumes", volume)
	return p.post(ctx, node, self+"?action="+actionTrim)
}

func (p *Peers) post(ctx context.Context, node, url string) (bool, error) {
	r, err := requestToNode(ctx, node, url)
	if err != nil {
		return false, err
	}
	if credential, _ := ctx.Value(credentialKey{}).(string); credential != "" {
		r.Header.Set("Authorization", credential)
	}
	response, err := p.http.Do(r)
	if err != nil {
		return false, &manager.Problem{Class: manager.ErrUnavailable, Cause: err, Text: fmt.Sprintf(
			"the daemon of node %q did not answer; it is unknown whether the request was carried out", node)}
	}
	defer func() { _ = response.Body.Close() }()
	return outcomeOf(node, response)
}

// requestToNode returns a request to the daemon of a node, without a credential.
func requestToNode(ctx context.Context, node, url string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, fmt.Errorf("create a request to the daemon of node %s: %w", node, err)
	}
	r.Header.Set(nodeHeader, node)
	r.Header.Set(forwardedHeader, "true") // by this header a daemon of an earlier release decides
	return r, nil
}

// outcomeOf returns the meaning of a daemon's answer.
func outcomeOf(node string, response *http.Response) (isDone bool, err error) {
	switch response.StatusCode {
	case http.StatusNoContent:
		return true, nil
	case http.StatusAccepted:
		return false, nil
	}
	var wire v1.Error
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &wire)
	}
	switch {
	case response.StatusCode == http.StatusServiceUnavailable && response.Header.Get(nodeHeader) == "":
		return false, &manager.Problem{Class: manager.ErrUnavailable, Text: fmt.Sprintf(
			"the daemon of node %q cannot carry out the request: it is of an earlier release or has just started; try again when all daemons are of this release", node)}
	case err != nil || wire.Message == "":
		return false, fmt.Errorf("the daemon of node %s answered with status %d and no message: %w", node, response.StatusCode, err)
	case response.StatusCode == http.StatusConflict:
		return false, &manager.Problem{Class: manager.ErrConflict, Text: wire.Message}
	}
	return false, &manager.Problem{Class: manager.ErrUnavailable, Text: fmt.Sprintf("the daemon of node %q refused the request: %s", node, wire.Message)}
}
