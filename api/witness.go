package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Before the leader treats a silent node as down, it asks the daemon of another node, the witness, whether the witness
// reaches the silent node:
//
//	leader: Peers ──► daemon of the witness: Guard (update of the Node) ──► NodeHandler ──► Reacher
//
// The request names the silent node, never an address. The witness reads the node's address from the API server. So a
// client cannot choose the address to which a daemon connects. A client that may update the Node may send this request.
//
// A daemon of an earlier release treats the request as one that was passed on to it as the leader. It refuses the
// request (503) without the header; if it leads, it has no such action. Then it is not a witness.

// Reacher reports whether this node reaches another node. Its errors are errors of package manager.
type Reacher interface {
	// Reaches must return within a second. The name is valid for a node.
	Reaches(ctx context.Context, node string) (bool, error)
}

// ErrEarlierRelease: the daemon does not know the request.
var ErrEarlierRelease = errors.New("the daemon is of an earlier release")

// reached is a witness's answer.
type reached struct {
	Reached *bool `json:"reached"`
}

func reachedBy(reacher Reacher) func(*http.Request) (reply, error) {
	return func(r *http.Request) (reply, error) {
		node := r.PathValue("id")
		if len(validation.IsDNS1123Subdomain(node)) > 0 {
			return reply{}, &refusal{http.StatusNotFound, fmt.Sprintf("node %.100q does not exist", node)}
		}
		reaches, err := reacher.Reaches(r.Context(), node)
		if err != nil {
			return reply{}, err
		}
		return reply{http.StatusOK, reached{&reaches}}, nil
	}
}

// Reaches asks the daemon of the node witness, at an IP address, whether it reaches the other node. token is the
// leader's token. An error means that the answer is not known. ErrEarlierRelease is such an error; other reasons are
// that the daemon did not answer, refused, or could not find out.
func (p *Peers) Reaches(ctx context.Context, witness, address, token, node string) (bool, error) {
	self := resourceURL("https://"+net.JoinHostPort(address, fmt.Sprint(types.APIPort))+"/v1", "nodes", node)
	r, err := requestToNode(ctx, witness, self+"?action="+actionReach)
	if err != nil {
		return false, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := p.http.Do(r)
	if err != nil {
		return false, fmt.Errorf("ask the daemon of node %s whether it reaches node %s: %w", witness, node, err)
	}
	defer func() { _ = response.Body.Close() }()
	marked := response.Header.Get(nodeHeader)
	switch {
	case marked == "" && (response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusNotFound):
		return false, ErrEarlierRelease
	case response.StatusCode != http.StatusOK || marked != witness:
		return false, fmt.Errorf("the daemon of node %s, asked whether it reaches node %s, answered with status %d as node %q",
			witness, node, response.StatusCode, marked)
	}
	var said reached
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &said)
	}
	if err != nil || said.Reached == nil {
		return false, fmt.Errorf("the daemon of node %s did not report whether it reaches node %s: %w", witness, node, errors.Join(err, errNoAnswer))
	}
	return *said.Reached, nil
}

var errNoAnswer = errors.New("the answer has no field \"reached\"")
