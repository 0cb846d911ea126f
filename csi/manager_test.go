package csi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// restServer answers each "METHOD path" with a status and a body, and stores the received bodies.
type restServer struct {
	answers map[string]restAnswer
	sent    map[string]map[string]any
}

type restAnswer struct {
	status int
	body   string
}

func (r *restServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	key := req.Method + " " + req.URL.RequestURI()
	data, _ := io.ReadAll(req.Body)
	if len(data) > 0 {
		var body map[string]any
		if json.Unmarshal(data, &body) == nil {
			r.sent[key] = body
		}
	}
	a, ok := r.answers[key]
	if !ok {
		a = restAnswer{http.StatusNotFound, ""}
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func managerOver(t *testing.T, answers map[string]restAnswer) (VolumeService, *restServer) {
	t.Helper()
	r := &restServer{answers: answers, sent: map[string]map[string]any{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	m, err := NewManager(server.URL+"/v1", nil)
	require.NoError(t, err)
	return m, r
}

const attachedVolume = `{"name":"pvc-1","size":"67108864","state":"attached","robustness":"healthy","ready":true,
 "controllers":[{"hostId":"n1","endpoint":"/dev/longhorn/pvc-1"}],
 "volumeAttachment":{"volume":"pvc-1","attachments":{
  "csi-a":{"attachmentID":"csi-a","attachmentType":"csi-attacher","nodeID":"n1","satisfied":true},
  "csi-b":{"attachmentID":"csi-b","attachmentType":"csi-attacher","nodeID":"n2","satisfied":false,
   "conditions":[{"type":"Satisfied","status":"False","reason":"AttachedElsewhere","message":"on n1"}]}}}}`

func TestManagerReadsAVolume(t *testing.T) {
	m, _ := managerOver(t, map[string]restAnswer{
		"GET /v1/volumes/pvc-1": {200, attachedVolume},
		"GET /v1/volumes/pvc-3": {200, `{"name":"pvc-3","size":"2097152","accessMode":"rwx","shareState":"running","shareEndpoint":"nfs://10.0.0.1/pvc-3"}`},
		"GET /v1/volumes/pvc-2": {200, `{"name":"pvc-2","size":"2097152","state":"detached","robustness":"faulted","strictLocalNodes":["n2"],"notReadyMessage":"volume is faulted","controllers":[{"hostId":"n1"}]}`},
	})
	got, err := m.Volume(t.Context(), "pvc-1")
	require.NoError(t, err)
	want := Volume{
		Name: "pvc-1", SizeBytes: 64 << 20, State: "attached", Ready: true, NodeID: "n1",
		Tickets: map[string]Ticket{
			"csi-a": {ID: "csi-a", Type: "csi-attacher", NodeID: "n1", Satisfied: true},
			"csi-b": {ID: "csi-b", Type: "csi-attacher", NodeID: "n2", Message: "AttachedElsewhere on n1"},
		},
	}
	assert.Equal(t, want, got)
	got, err = m.Volume(t.Context(), "pvc-2")
	require.NoError(t, err)
	assert.True(t, got.Faulted)
	assert.Empty(t, got.NodeID)
	assert.Equal(t, []string{"n2"}, got.StrictLocalNodes)
	assert.Equal(t, "volume is faulted", got.NotReadyMessage, "a detached, faulted volume")
	got, err = m.Volume(t.Context(), "pvc-3")
	require.NoError(t, err)
	want = Volume{Name: "pvc-3", SizeBytes: 2 << 20, AccessMode: "rwx", ShareState: "running", ShareEndpoint: "nfs://10.0.0.1/pvc-3", Tickets: map[string]Ticket{}}
	assert.Equal(t, want, got)
}

func TestManagerSendsWhatIsAsked(t *testing.T) {
	m, r := managerOver(t, map[string]restAnswer{
		"POST /v1/volumes":                     {200, attachedVolume},
		"POST /v1/volumes/pvc-1?action=attach": {200, attachedVolume},
		"POST /v1/volumes/pvc-1?action=detach": {200, attachedVolume},
		"DELETE /v1/volumes/pvc-1":             {204, ""},
		"GET /v1/nodes/n1":                     {200, `{"name":"n1"}`},
	})
	err := errors.Join(
		m.CreateVolume(t.Context(), VolumeRequest{
			Name: "pvc-1", SizeBytes: 64 << 20, NumberOfReplicas: 3, StaleReplicaTimeoutMinutes: 30, DataLocality: "disabled",
			VolumeOptions: types.VolumeOptions{
				ReplicaSoftAntiAffinity: "ignored", ReplicaZoneSoftAntiAffinity: "disabled", ReplicaDiskSoftAntiAffinity: "enabled", ReplicaAutoBalance: "best-effort",
			},
			AccessMode: "rwo", DiskSelector: []string{"ssd"}, NodeSelector: []string{"storage"},
		}),
		m.Attach(t.Context(), "pvc-1", Ticket{ID: "csi-a", Type: "csi-attacher", NodeID: "n1"}),
		m.Detach(t.Context(), "pvc-1", "csi-a"),
		m.DeleteVolume(t.Context(), "pvc-1"),
	)
	require.NoError(t, err)
	want := map[string]map[string]any{
		"POST /v1/volumes": {
			"name": "pvc-1", "size": "67108864", "numberOfReplicas": 3.0, "staleReplicaTimeout": 30.0, "dataLocality": "disabled",
			"accessMode": "rwo", "replicaSoftAntiAffinity": "ignored", "replicaZoneSoftAntiAffinity": "disabled", "replicaDiskSoftAntiAffinity": "enabled", "replicaAutoBalance": "best-effort", "diskSelector": []any{"ssd"}, "nodeSelector": []any{"storage"}, "mustFit": true,
		},
		"POST /v1/volumes/pvc-1?action=attach": {"hostId": "n1", "attacherType": "csi-attacher", "attachmentID": "csi-a"},
		"POST /v1/volumes/pvc-1?action=detach": {"attachmentID": "csi-a"},
	}
	assert.Equal(t, want, r.sent)
	for node, want := range map[string]bool{"n1": true, "n2": false} {
		got, err := m.HasNode(t.Context(), node)
		require.NoError(t, err, "node %s", node)
		assert.Equal(t, want, got, "node %s", node)
	}
}

func TestManagerErrorsGetTheCodesThatCallersActOn(t *testing.T) {
	cases := []struct {
		name   string
		answer restAnswer
		code   codes.Code
		text   string
	}{
		{"not found with an empty body", restAnswer{404, ""}, codes.NotFound, ""},
		{"conflict", restAnswer{409, `{"type":"error","status":409,"code":"Conflict","message":"volume is faulted"}`}, codes.Aborted, "volume is faulted"},
		{"malformed", restAnswer{400, `{"type":"error","status":400,"code":"Bad Request","message":"no"}`}, codes.InvalidArgument, "no"},
		{"invalid", restAnswer{422, `{"type":"error","status":422,"code":"Unprocessable Entity","message":"diskSelector: tag ssd does not exist"}`}, codes.InvalidArgument, "diskSelector: tag ssd does not exist"},
		{
			"no room",
			restAnswer{422, `{"type":"error","status":422,"code":"Insufficient Storage","message":"no place","detail":"n1: full\nn2: cordoned\n"}`},
			codes.ResourceExhausted, "no place: n1: full; n2: cordoned",
		},
		{"no leader", restAnswer{503, ""}, codes.Unavailable, ""},
		{"a failure of the server", restAnswer{500, `{"type":"error","status":500,"code":"Internal Server Error","message":"oops"}`}, codes.Unavailable, "oops"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, _ := managerOver(t, map[string]restAnswer{"POST /v1/volumes": c.answer})
			err := m.CreateVolume(t.Context(), VolumeRequest{Name: "pvc-1"})
			assert.Equal(t, c.code, codeOf(err), err)
			if err != nil && c.text != "" {
				checkError(t, err, c.text)
			}
		})
	}
}

// A manager of an earlier release refuses the key mustFit; then it gets the request without it. If the size is invalid,
// it stays so. An expansion that does not fit is not requested again without the key: it would wait for space.
func TestManagerAsksForRoomToGrow(t *testing.T) {
	refuse := func(status int, code, message string) restAnswer {
		return restAnswer{status, `{"type":"error","status":422,"code":"` + code + `","message":"` + message + `"}`}
	}
	with, without := `{"size":"134217728","mustFit":true}`, `{"size":"134217728"}`
	for name, c := range map[string]struct {
		answers map[string]restAnswer // by body
		asked   []string
		err     error
	}{
		"there is room → asked once":               {map[string]restAnswer{with: {200, attachedVolume}}, []string{with}, nil},
		"there is none → insufficient":             {map[string]restAnswer{with: refuse(422, "Insufficient Storage", "disk d of node n: no")}, []string{with}, ErrInsufficientStorage},
		"an earlier release → asked without it":    {map[string]restAnswer{with: refuse(422, "", "mustFit: is no key of this action; it has size"), without: {200, attachedVolume}}, []string{with, without}, nil},
		"the size is invalid → invalid both times": {map[string]restAnswer{with: refuse(422, "", "size"), without: refuse(422, "", "size")}, []string{with, without}, ErrInvalid},
		"it cannot be expanded now → asked once":   {map[string]restAnswer{with: refuse(409, "", "faulted")}, []string{with}, ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				asked = append(asked, strings.TrimSpace(string(body)))
				a := c.answers[asked[len(asked)-1]]
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, a.body)
			}))
			defer server.Close()
			m, err := NewManager(server.URL+"/v1", nil)
			require.NoError(t, err)
			require.ErrorIs(t, m.Expand(t.Context(), "pvc-1", 128<<20), c.err)
			assert.Equal(t, c.asked, asked)
		})
	}
}

const snapshotAnswer = `{"name":"s1","volume":"pvc-1","creationTime":"2026-11-28T09:30:00Z","readyToUse":true,"restoreSize":67108864,"size":4096,
 "labels":{"type":"snap"},"children":{"volume-head":true},"conditions":{"Ready":{"type":"Ready","status":"True"}}}`

func TestManagerSnapshots(t *testing.T) {
	m, r := managerOver(t, map[string]restAnswer{
		"POST /v1/volumes/pvc-1?action=snapshotCRCreate": {200, `{"name":"s1","volume":"pvc-1","createSnapshot":true,"conditions":{"Ready":{"status":"False","reason":"Waiting","message":"the volume is being attached"}}}`},
		"POST /v1/volumes/pvc-1?action=snapshotCRGet":    {200, snapshotAnswer},
		"POST /v1/volumes/pvc-1?action=snapshotCRList":   {200, `{"type":"collection","data":[` + snapshotAnswer + `,{"name":"s2","volume":"pvc-1","markRemoved":true,"error":"no space","creationTime":""}]}`},
		"POST /v1/volumes/pvc-1?action=snapshotCRDelete": {200, ""},
	})
	s, err := m.CreateSnapshot(t.Context(), "pvc-1", "s1", map[string]string{"type": "snap"})
	require.NoError(t, err)
	assert.Equal(t, Snapshot{Name: "s1", Volume: "pvc-1", NotReadyMessage: "the volume is being attached"}, s)
	want := Snapshot{Name: "s1", Volume: "pvc-1", TakenAt: takenAt, Ready: true, SizeBytes: 64 << 20, Labels: map[string]string{"type": "snap"}}
	s, err = m.Snapshot(t.Context(), "pvc-1", "s1")
	require.NoError(t, err)
	assert.Equal(t, want, s)
	list, err := m.Snapshots(t.Context(), "pvc-1")
	require.NoError(t, err)
	assert.Equal(t, []Snapshot{want, {Name: "s2", Volume: "pvc-1", Removed: true, Failed: true, NotReadyMessage: "no space"}}, list)
	require.NoError(t, m.DeleteSnapshot(t.Context(), "pvc-1", "s1"))
	assert.Equal(t, map[string]map[string]any{
		"POST /v1/volumes/pvc-1?action=snapshotCRCreate": {"name": "s1", "labels": map[string]any{"type": "snap"}},
		"POST /v1/volumes/pvc-1?action=snapshotCRGet":    {"name": "s1"},
		"POST /v1/volumes/pvc-1?action=snapshotCRList":   {},
		"POST /v1/volumes/pvc-1?action=snapshotCRDelete": {"name": "s1"},
	}, r.sent)
	_, err = m.Snapshot(t.Context(), "pvc-2", "s1")
	require.ErrorIs(t, err, ErrNotFound)
}

func TestManagerSendsADataSource(t *testing.T) {
	m, r := managerOver(t, map[string]restAnswer{"POST /v1/volumes": {200, attachedVolume}})
	require.NoError(t, m.CreateVolume(t.Context(), VolumeRequest{Name: "pvc-1", SizeBytes: 64 << 20, DataSource: "snap://pvc-2/s"}))
	assert.Equal(t, "snap://pvc-2/s", r.sent["POST /v1/volumes"]["dataSource"])
	assert.Equal(t, "pvc-1", r.sent["POST /v1/volumes"]["name"])
}
