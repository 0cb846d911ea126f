package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// owner has all rights to objects of longhorn.io. The fields answer for other rights.
type owner struct {
	may    error // the error of the answer
	denied bool
	asked  []Attributes
}

func (o *owner) Authenticate(context.Context, string) (Identity, error) {
	return Identity{User: "ann"}, nil
}

func (o *owner) Allowed(_ context.Context, _ Identity, what Attributes) (bool, error) {
	if what.Group == "" {
		return true, nil
	}
	o.asked = append(o.asked, what)
	return !o.denied, o.may
}

// TestAPersistentVolumeAndAClaimNeedTheRightToCreateThem: the right to update a volume is not sufficient.
func TestAPersistentVolumeAndAClaimNeedTheRightToCreateThem(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: "vol"}},
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}
	makePV := Attributes{Verb: "create", Group: GroupCore, Resource: "persistentvolumes", Namespace: NoNamespace}
	makeClaim := Attributes{Verb: "create", Group: GroupCore, Resource: "persistentvolumeclaims", Namespace: "shop"}
	for _, tc := range []struct {
		name, action, body string
		access             *owner
		status             int
		message            string
		asked              []Attributes
		writes             []string
	}{
		{
			"a PersistentVolume without the right → refused", "pvCreate", `{}`, &owner{denied: true}, 403,
			`user "ann" has no right to create persistentvolumes`,
			[]Attributes{makePV},
			nil,
		},
		{
			"a claim without the right → refused", "pvcCreate", `{"namespace":"shop"}`, &owner{denied: true}, 403,
			`user "ann" has no right to create persistentvolumeclaims in namespace shop`,
			[]Attributes{makeClaim},
			nil,
		},
		{
			"the right cannot be reviewed → try again", "pvcCreate", `{"namespace":"shop"}`, &owner{may: errBehindTheScenes}, 503,
			textUndecided,
			[]Attributes{makeClaim},
			nil,
		},
		{
			"too many reviews → try again", "pvCreate", `{}`, &owner{may: ErrTooManyReviews}, 429,
			"too many tokens and rights are being checked at the same time; try again",
			[]Attributes{makePV},
			nil,
		},
		{
			"a claim in no namespace → the field, whatever the right", "pvcCreate", `{}`, &owner{denied: true}, 422,
			"namespace: is not a valid name of a namespace", nil, nil,
		},
		{
			"a claim with the right → made", "pvcCreate", `{"namespace":"shop"}`, &owner{}, 200, "",
			[]Attributes{makeClaim},
			[]string{"update persistentvolumes/vol", "create persistentvolumeclaims/vol"},
		},
		{
			"another action → asks for nothing more", "detach", `{}`, &owner{denied: true}, 200, "", nil, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, append(threeNodes(), detached("vol"))...)
			if tc.action == "pvcCreate" {
				b.Seed(pv.DeepCopy())
				require.NoError(t, b.workloads.Replace([]*corev1.PersistentVolume{pv}))
			}
			w := do(t, b.guarded(tc.access, never), "POST", "/v1/volumes/vol?action="+tc.action, tc.body, "Authorization: Bearer x")
			assert.Equal(t, tc.status, w.Code, w.Body)
			if tc.message != "" {
				assert.Contains(t, decoded[v1.Error](t, w).Message, tc.message)
			}
			assert.Equal(t, tc.asked, tc.access.asked)
			b.ExpectWrites(tc.writes...)
		})
	}
}

// TestEventsAreAskedForAsThoseOfKubernetes tests a collection and a stream.
func TestEventsAreAskedForAsThoseOfKubernetes(t *testing.T) {
	b := newBench(t)
	for path, want := range map[string]Attributes{
		"/v1/events":       {Verb: "list", Group: GroupCore, Resource: "events"},
		"/v1/ws/events":    {Verb: "list", Group: GroupCore, Resource: "events"},
		"/v1/ws/1s/events": {Verb: "list", Group: GroupCore, Resource: "events"},
		"/v1/events/nix":   {Verb: "get", Group: GroupCore, Resource: "events", Name: "nix"},
	} {
		access := &owner{denied: true}
		w := do(t, b.guarded(access, never), "GET", path, "", "Authorization: Bearer x")
		assert.Equal(t, 403, w.Code, path)
		assert.Equal(t, []Attributes{want}, access.asked, path)
	}
}

// TestEventsAreThoseOfOurObjects tests the fields that clients read.
func TestEventsAreThoseOfOurObjects(t *testing.T) {
	event := func(name, version string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "longhorn-system", Name: name, CreationTimestamp: metav1.Unix(1000, 0)},
			InvolvedObject: corev1.ObjectReference{APIVersion: version, Kind: "Volume", Namespace: "longhorn-system", Name: "vol"},
			Type:           corev1.EventTypeWarning, Reason: "Degraded", Message: "a copy is missing",
			LastTimestamp: metav1.Unix(2000, 0), Source: corev1.EventSource{Component: "longhorn-manager", Host: "node-1"},
		}
	}
	b := newBench(t, event("vol.2", longhorn.SchemeGroupVersion.String()), event("vol.1", longhorn.SchemeGroupVersion.String()), event("pod.1", "v1"))
	got := decoded[v1.Collection[v1.Event]](t, do(t, b.server, "GET", "http://h/v1/events", ""))
	require.Len(t, got.Data, 2)
	assert.Equal(t, "vol.1", got.Data[0].ID)
	assert.Equal(t, "event", got.Data[0].Type)
	assert.Equal(t, "Warning", got.Data[0].EventType)
	assert.Equal(t, v1.KubernetesEvent{
		Metadata:       v1.EventMetadata{Name: "vol.1", Namespace: "longhorn-system", UID: "uid-vol.1", CreationTimestamp: "1970-01-01T00:16:40Z"},
		InvolvedObject: v1.InvolvedObject{Kind: "Volume", Namespace: "longhorn-system", Name: "vol", APIVersion: "longhorn.io/v1beta2"},
		Type:           "Warning", Reason: "Degraded", Message: "a copy is missing", Count: 1,
		Source:         v1.EventSource{Component: "longhorn-manager", Host: "node-1"},
		FirstTimestamp: "1970-01-01T00:16:40Z", LastTimestamp: "1970-01-01T00:33:20Z",
	}, got.Data[0].Event)
	assert.Equal(t, 200, do(t, b.server, "GET", "/v1/events/vol.2", "").Code)
	assert.Equal(t, 404, do(t, b.server, "GET", "/v1/events/pod.1", "").Code)
}
