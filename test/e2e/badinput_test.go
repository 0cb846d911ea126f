package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// tooLarge is more than all disks of the cluster have together: 1 PiB in bytes, and in the form that users write.
const (
	tooLarge      = "1125899906842624"
	tooLargeClaim = "1Pi"
)

// TestBadInput: after a request for something impossible, users see the field and the rule in the place where they look
// for them. Nothing is created.
func TestBadInput(t *testing.T) {
	t.Parallel() // runs with the other tests that keep the cluster intact, after the tests that do not
	ctx, c := threeNodes.get(t, ordinary)
	api := restOf(ctx, t, c)
	ns := namespace(ctx, t, c, "e2e-bad-input")
	held := holdElsewhere(ctx, t, c, api, ns)
	t.Run("claims", func(t *testing.T) { badClaims(ctx, t, c, ns) })
	t.Run("a StorageClass with an unknown key → a volume, and an Event", func(t *testing.T) { unknownKey(ctx, t, c, ns) })
	t.Run("a volume made by kubectl, larger than every disk → detached, not scheduled", func(t *testing.T) { largeVolume(ctx, t, c) })
	t.Run("REST", func(t *testing.T) { badRequests(ctx, t, api, held) })
	// This is last: the driver waits for 90 s before it abandons the pod's attachment. That time has passed while the
	// others ran.
	t.Run("a volume held on another node → the pod waits, is told, and gets it", func(t *testing.T) { held.letGo(ctx, t) })
}

func badClaims(ctx context.Context, t *testing.T, c *cluster.Cluster, ns string) {
	class(ctx, t, c, "e2e-bad-value", `{numberOfReplicas: "none"}`)
	class(ctx, t, c, "e2e-misspelt", `{numberOfReplica: "2"}`)
	for _, tc := range []struct {
		name, claim, size, class string
		told                     []string // parts of the Event
	}{
		{
			"a misspelt parameter of the StorageClass → the name that was probably meant", "misspelt", "64Mi", "e2e-misspelt",
			[]string{"storage class e2e-misspelt", "parameter numberOfReplica: there is no parameter of this name; did you mean numberOfReplicas?"},
		},
		{
			"a bad value in the StorageClass → the key, the value and the rule", "bad-value", "64Mi", "e2e-bad-value",
			[]string{"storage class e2e-bad-value", `parameter numberOfReplicas: value "none" must be a whole number from 1 to 20`},
		},
		{
			"larger than every disk → no room, and why", "too-large", tooLargeClaim, "longhorn",
			[]string{"size 1 PiB with numberOfReplicas 3 does not fit on the disks", "insufficient storage"},
		},
		{
			"more bytes than 64 bits can count → out of range", "10e", "10E", "longhorn",
			[]string{"capacity range: the required size 8 EiB (9223372036854775807 bytes) is more than the largest possible size"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			startClaim(ctx, t, c, ns, tc.claim, tc.size, tc.class)
			waitEvent(ctx, t, c, ns, "PersistentVolumeClaim", tc.claim, append(tc.told, "ProvisioningFailed")...)
			pvc, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(ctx, tc.claim, metav1.GetOptions{})
			require.NoError(t, err)
			assert.EqualValues(t, "Pending", pvc.Status.Phase)
			wantNoVolume(ctx, t, c, "pvc-"+string(pvc.UID))
		})
	}
}

func unknownKey(ctx context.Context, t *testing.T, c *cluster.Cluster, ns string) {
	class(ctx, t, c, "e2e-unknown-key", `{numberOfReplicas: "2", snapshotDataIntegrity: enabled, colour: blue}`)
	volume := claimOf(ctx, t, c, ns, "unknown-key", "64Mi", "e2e-unknown-key")
	waitEvent(ctx, t, c, ns, "PersistentVolumeClaim", "unknown-key",
		"IgnoredParameters", "storage class e2e-unknown-key", `colour ("blue"), snapshotDataIntegrity ("enabled")`)
	assert.Equal(t, 2, theVolume(ctx, t, c, volume).Spec.NumberOfReplicas)
}

func largeVolume(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	const name = "e2e-too-large"
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		c.Must(ctx, t, "-n", types.Namespace, "delete", "volumes.longhorn.io", name, "--ignore-not-found", "--timeout=60s")
	})
	require.NoError(t, c.Apply(ctx, object("Volume", name, fmt.Sprintf(`spec: {size: "%s"}`, tooLarge))))
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=condition=Scheduled=False", "volumes.longhorn.io/"+name, "--timeout=60s")
	v := theVolume(ctx, t, c, name)
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	assert.EqualValues(t, "detached", v.Status.State)
	assert.Contains(t, scheduled.Message, "insufficient storage")
	waitEvent(ctx, t, c, types.Namespace, "Volume", name, types.ReasonReplicaSchedulingFailure, "insufficient storage")
	assert.Empty(t, replicasOf(ctx, t, c, name))
	answer := restOf(ctx, t, c).do(ctx, t, http.MethodPost, "/volumes/"+name+"?action=attach", v1.AttachInput{HostID: nodes[0]}, http.StatusConflict, nil)
	assert.Contains(t, answer, "unable to attach volume")
}

func badRequests(ctx context.Context, t *testing.T, api restAPI, held *heldVolume) {
	const name = "e2e-bad-rest"
	for _, tc := range []struct {
		name, method, path string
		body               any
		want               int
		told               []string // parts of the message
	}{
		{
			"a bad value → the field, the value and the rule", http.MethodPost, "/volumes",
			v1.VolumeCreate{Name: name, Size: "64Mi", NumberOfReplicas: 21},
			http.StatusUnprocessableEntity,
			[]string{`numberOfReplicas: \"21\" must be 1 to 20`},
		},
		{
			"larger than every disk, and must fit → no room, and why", http.MethodPost, "/volumes",
			v1.VolumeCreate{Name: name, Size: tooLargeClaim, MustFit: true},
			http.StatusUnprocessableEntity,
			[]string{v1.CodeInsufficientStorage, "size 1 PiB", "insufficient storage"},
		},
		{
			"more bytes than 64 bits can count → the field and the rule", http.MethodPost, "/volumes",
			v1.VolumeCreate{Name: name, Size: "10E"},
			http.StatusUnprocessableEntity,
			[]string{`size: \"10E\" must be at most 9223372036852678656 bytes`},
		},
		{"nothing was made", http.MethodGet, "/volumes/" + name, nil, http.StatusNotFound, []string{`volume \"e2e-bad-rest\" does not exist`}},
		{
			"a volume that is not there is attached → not found", http.MethodPost, "/volumes/" + name + "?action=attach",
			v1.AttachInput{HostID: nodes[0]},
			http.StatusNotFound,
			[]string{`volume \"e2e-bad-rest\" does not exist`},
		},
		{"a node that is not there → not found", http.MethodGet, "/nodes/node-99", nil, http.StatusNotFound, []string{`\"node-99\" does not exist`}},
		{
			"attached to a node that is not there → the field and the value", http.MethodPost, held.path("attach"),
			v1.AttachInput{HostID: "node-99", AttachmentID: "second"},
			http.StatusUnprocessableEntity,
			[]string{`hostId: \"node-99\" does not exist`},
		},
		{
			"a second attachment elsewhere → conflict", http.MethodPost, held.path("attach"),
			v1.AttachInput{HostID: nodes[1], AttachmentID: "second"},
			http.StatusConflict,
			[]string{`hostId: \"node-2\" is refused`, `is attached to node \"node-1\"`},
		},
		{
			"the first attachment is moved → conflict", http.MethodPost, held.path("attach"),
			v1.AttachInput{HostID: nodes[1]},
			http.StatusConflict,
			[]string{`for node \"node-1\"; detach it first`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer := api.do(ctx, t, tc.method, tc.path, tc.body, tc.want, nil)
			for _, part := range tc.told {
				assert.Contains(t, answer, part)
			}
		})
	}
}

// heldVolume is a volume that a user has attached to the first node. A pod on another node waits for it.
type heldVolume struct {
	c                      *cluster.Cluster
	api                    restAPI
	namespace, volume, pod string
}

func holdElsewhere(ctx context.Context, t *testing.T, c *cluster.Cluster, api restAPI, ns string) *heldVolume {
	t.Helper()
	h := &heldVolume{c: c, api: api, namespace: ns, volume: claim(ctx, t, c, ns, "held", "64Mi"), pod: "waiting"}
	api.do(ctx, t, http.MethodPost, h.path("attach"), v1.AttachInput{HostID: nodes[0]}, http.StatusOK, nil)
	waitVolume(ctx, t, c, h.volume, ".status.state", "attached")
	uncordon := func() { c.Must(context.WithoutCancel(ctx), t, "uncordon", nodes[0]) }
	t.Cleanup(uncordon)
	c.Must(ctx, t, "cordon", nodes[0])
	startPod(ctx, t, c, ns, h.pod, "held", idle)
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=PodScheduled", "pod/"+h.pod, "--timeout=60s")
	uncordon()
	return h
}

func (h *heldVolume) path(action string) string { return "/volumes/" + h.volume + "?action=" + action }

// letGo waits until the pod's owner can read where the volume is. Then it detaches the volume, so that the pod gets it.
func (h *heldVolume) letGo(ctx context.Context, t *testing.T) {
	waitEvent(ctx, t, h.c, h.namespace, "Pod", h.pod, "FailedAttachVolume", "it is still attached to node "+nodes[0])
	phase := podPhase(ctx, t, h.c, h.namespace, h.pod)
	assert.Equal(t, "Pending", phase, "the pod is %s while the volume is elsewhere", phase)
	h.api.do(ctx, t, http.MethodPost, h.path("detach"), v1.DetachInput{}, http.StatusOK, nil)
	h.c.Must(ctx, t, "-n", h.namespace, "wait", "--for=condition=Ready", "pod/"+h.pod, "--timeout=180s")
	node := nodeOf(ctx, t, h.c, h.namespace, h.pod)
	at := theVolume(ctx, t, h.c, h.volume).Status.CurrentNodeID
	assert.Equal(t, node, at)
	assert.NotEqual(t, nodes[0], at)
}

// class creates a StorageClass of our driver with parameters. It is deleted when the test ends.
func class(ctx context.Context, t *testing.T, c *cluster.Cluster, name, parameters string) {
	t.Helper()
	manifest := fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
parameters: %s
`, name, types.DriverName, parameters)
	require.NoError(t, c.Apply(ctx, manifest))
	t.Cleanup(func() { c.Must(context.WithoutCancel(ctx), t, "delete", "storageclass", name, "--ignore-not-found") })
}

// waitEvent waits for an Event about an object that has all the parts in its reason or message.
func waitEvent(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, kind, name string, parts ...string) {
	t.Helper()
	about := fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.String()
	what := fmt.Sprintf("an Event on %s %s has %q", kind, name, parts)
	cluster.Eventually(ctx, t, 2*time.Minute, what, func(ctx context.Context) error {
		list, err := c.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: about})
		if err != nil {
			return err
		}
		var texts []string
		for _, e := range list.Items {
			text := e.Reason + ": " + e.Message
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) }) {
				return nil
			}
			texts = append(texts, text)
		}
		return errors.New("there are " + strings.Join(texts, "; "))
	})
}

// wantNoVolume checks that no object of a volume exists: neither ours nor a PersistentVolume.
func wantNoVolume(ctx context.Context, t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	_, err := c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(ctx, name, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "volume %s: %v, want none", name, err)
	_, err = c.Kube.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "persistent volume %s: %v, want none", name, err)
}
