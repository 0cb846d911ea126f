package api

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// trimmer answers as the test sets it up.
type trimmer struct {
	asked  []string
	isDone bool
	err    error
}

func (t *trimmer) Trim(_ context.Context, volume string) (bool, error) {
	t.asked = append(t.asked, volume)
	return t.isDone, t.err
}

// attachedAt returns volume "vol", attached to node-1, and node-1's daemon with the pod IP address.
func attachedAt(address string, change ...func(*longhorn.Volume)) []runtime.Object {
	objs := append(threeNodes(), build.Volume("vol", func(v *longhorn.Volume) {
		v.Spec.NodeID = "node-1"
		v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = longhorn.VolumeStateAttached, "node-1", longhorn.VolumeRobustnessHealthy
		for _, f := range change {
			f(v)
		}
	}))
	if address != "" {
		objs = append(objs, daemonOf("node-1", address))
	}
	return objs
}

// daemonOf returns the pod of a node's daemon.
func daemonOf(node, address string) *corev1.Pod {
	return build.Pod("longhorn-manager-"+node, node, func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "longhorn-manager"}
		p.Status.PodIP = address
	})
}

// peersOf returns Peers that reach one daemon under any address.
func peersOf(t *testing.T, daemon http.Handler) *Peers {
	t.Helper()
	node := httptest.NewTLSServer(daemon)
	t.Cleanup(node.Close)
	peers := NewPeers(trustingServer(node))
	t.Cleanup(peers.Close)
	address := node.Listener.Addr().String()
	peers.transport = client.NewTransport(client.TransportOptions{Trust: trustingServer(node), ServerName: "example.com", Base: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}})
	peers.http.Transport = peers.transport
	return peers
}

// trimming returns a leader whose Peers reach one daemon under any address.
func trimming(t *testing.T, daemon http.Handler, objs ...runtime.Object) *bench {
	t.Helper()
	peers := peersOf(t, daemon)
	b := newBench(t, objs...)
	deps := manager.DepsOf(b.Datastore(datastore.Options{}), b.workloads, hastyClock{b.Clock}, b.Log)
	deps.Daemons = peers
	b.server = NewServer(Deps{Manager: manager.New(deps), Log: b.Log})
	return b
}

const trimVol = "/v1/volumes/vol?action=trimFilesystem"

// TestTheNodesDaemonTrims: the leader passes on the sender's own credential, and the node's daemon requires the same
// right.
func TestTheNodesDaemonTrims(t *testing.T) {
	for name, c := range map[string]struct {
		trimmer trimmer
		token   string
		status  int
		message string // of the error
	}{
		"it has ended → the volume":           {trimmer{isDone: true}, "admin", 200, ""},
		"it goes on → accepted":               {trimmer{}, "admin", 202, ""},
		"nothing is mounted → conflict":       {trimmer{err: &manager.Problem{Class: manager.ErrConflict, Text: "not mounted"}}, "admin", 409, "not mounted"},
		"it fails → unavailable":              {trimmer{err: &manager.Problem{Class: manager.ErrUnavailable, Text: "I/O error"}}, "admin", 503, `the daemon of node "node-1" refused the request: I/O error`},
		"it fails behind the scenes → hidden": {trimmer{err: errBehindTheScenes}, "admin", 503, `the daemon of node "node-1" refused the request: the request failed; the logs of the longhorn-manager pods contain the cause`},
		"no right → refused by the leader":    {trimmer{isDone: true}, "reader", 403, `user "reader" has no right to update volumes.longhorn.io vol`},
	} {
		t.Run(name, func(t *testing.T) {
			tr, daemonAccess := c.trimmer, &accessOf{}
			b := newBench(t)
			daemon := NewGuard(daemonAccess, never, NewNodeHandler("node-1", NodeDeps{Trimmer: &tr, Log: b.Log}), b.Log)
			b = trimming(t, daemon, attachedAt("192.0.2.1")...)
			w := do(t, NewGuard(&accessOf{}, never, b.server, b.Log), "POST", trimVol, "", "Authorization: Bearer "+c.token)
			require.Equal(t, c.status, w.Code, w.Body)
			b.ExpectWrites()
			if c.status == 403 {
				assert.Empty(t, tr.asked)
				return
			}
			assert.Equal(t, []string{"vol"}, tr.asked)
			assert.Equal(t, []Attributes{{Verb: "update", Resource: "volumes", Name: "vol"}}, daemonAccess.asked)
			if c.message != "" {
				assert.Equal(t, c.message, decoded[v1.Error](t, w).Message)
				return
			}
			v := decoded[v1.Volume](t, w)
			assert.Equal(t, "vol", v.ID)
			assert.Equal(t, "http://example.com/v1/volumes/vol", v.Links["self"])
		})
	}
}

// TestTheLeaderRefusesATrimThatIsNotPossible: the leader calls no daemon.
func TestTheLeaderRefusesATrimThatIsNotPossible(t *testing.T) {
	daemon := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a daemon was asked") })
	block := corev1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		objs    []runtime.Object
		pv      *corev1.PersistentVolume
		path    string
		body    string
		status  int
		message string
		offered bool
	}{
		"detached": {
			objs:   attachedAt("192.0.2.1", func(v *longhorn.Volume) { v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateDetached, "" }),
			status: 409, message: `volume "vol" cannot be trimmed: it is detached, and only a mounted file system can be trimmed`,
		},
		"new": {
			objs:   attachedAt("192.0.2.1", func(v *longhorn.Volume) { v.Status.State, v.Status.CurrentNodeID = "", "" }),
			status: 409, message: `volume "vol" cannot be trimmed: it is creating, and only a mounted file system can be trimmed`,
		},
		"attached without a device": {
			objs:   attachedAt("192.0.2.1", func(v *longhorn.Volume) { v.Status.FrontendDisabled = true }),
			status: 409, message: `volume "vol" cannot be trimmed: it is attached without a block device`, offered: true,
		},
		"a block device for its pods": {
			objs: attachedAt("192.0.2.1"),
			pv: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
				VolumeMode: &block,
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: "driver.longhorn.io", VolumeHandle: "vol",
				}},
			}},
			status: 409, message: `volume "vol" cannot be trimmed: the volumeMode of its PersistentVolume "pv" is Block, so only its pods know the content of the device`, offered: true,
		},
		"no daemon on the node": {
			objs: attachedAt(""), status: 503, message: `volume "vol" cannot be trimmed: no longhorn-manager pod runs on node "node-1", where the volume is attached`, offered: true,
		},
		"no such volume": {
			objs: attachedAt("192.0.2.1"), path: "/v1/volumes/nix?action=trimFilesystem", status: 404, message: `volume "nix" does not exist`, offered: true,
		},
		"a key that it has not": {
			objs: attachedAt("192.0.2.1"), body: `{"force":true}`, status: 422, message: "force: is not a field of this action; the fields that can be set are ", offered: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := trimming(t, daemon, c.objs...)
			if c.pv != nil {
				c.pv.Name = "pv"
				require.NoError(t, b.workloads.Replace([]*corev1.PersistentVolume{c.pv}))
			}
			path := c.path
			if path == "" {
				path = trimVol
			}
			w := do(t, b.server, "POST", path, c.body)
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.message, decoded[v1.Error](t, w).Message)
			v := decoded[v1.Volume](t, do(t, b.server, "GET", "/v1/volumes/vol", ""))
			assert.Equal(t, c.offered, v.Actions["trimFilesystem"] != "", "it is offered")
			b.ExpectWrites()
		})
	}
}

// TestADaemonThatCannotTrimIsNamed: a daemon of an earlier release, a daemon of another node, and a daemon that cannot
// be reached.
func TestADaemonThatCannotTrimIsNamed(t *testing.T) {
	older := follower(t, "http://192.0.2.9:9500")
	for name, c := range map[string]struct {
		daemon  http.Handler
		message string
	}{
		"of an earlier release": {
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(nodeHeader) // an earlier release ignores it
				older.ServeHTTP(w, r)
			}),
			`the daemon of node "node-1" cannot carry out the request: it is of an earlier release or has just started; try again when all daemons are of this release`,
		},
		"of another node": {
			NewNodeHandler("node-2", NodeDeps{Trimmer: &trimmer{isDone: true}, Log: newBench(t).Log}),
			`the daemon of node "node-1" refused the request: this is the daemon of node "node-2", not of node "node-1"`,
		},
		"cut off": {
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			`the daemon of node "node-1" did not answer; it is unknown whether the request was carried out`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := trimming(t, c.daemon, attachedAt("192.0.2.1")...)
			w := do(t, b.server, "POST", trimVol, "")
			assert.Equal(t, 503, w.Code)
			assert.Equal(t, c.message, decoded[v1.Error](t, w).Message)
		})
	}
}

// TestNodeRequestsAreAnsweredByTheNodesDaemon: no other request is answered there because of the header.
func TestNodeRequestsAreAnsweredByTheNodesDaemon(t *testing.T) {
	front := follower(t, "")
	for request, want := range map[string]string{
		"POST " + trimVol:                    "local",
		"POST /v1/volumes/vol?action=attach": "",
		"GET " + trimVol:                     "",
		"DELETE /v1/volumes/vol":             "",
	} {
		method, path, _ := strings.Cut(request, " ")
		w := do(t, front, method, path, "", nodeHeader+": node-1")
		if want == "" {
			assert.Equal(t, 503, w.Code, "%s: it goes to the leader, of whom there is none", request)
			continue
		}
		assert.Equal(t, want, w.Body.String(), request)
	}
	tr := &trimmer{isDone: true}
	h := NewNodeHandler("node-1", NodeDeps{Trimmer: tr, Log: newBench(t).Log})
	for _, path := range []string{
		"/v1/nodes/vol?action=trimFilesystem", "/v1/volumes?action=trimFilesystem", "/v1/volumes/vol/x?action=trimFilesystem",
		"/v1/volumes/..%2fsda1?action=trimFilesystem", "/v1/volumes/%2e%2e?action=trimFilesystem", "/v1/volumes/a%2fb?action=trimFilesystem",
	} {
		assert.Equal(t, 404, do(t, h, "POST", path, "", nodeHeader+": node-1").Code, path)
	}
	assert.Empty(t, tr.asked)
}
