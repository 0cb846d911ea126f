package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// nextImage contains the same program with another version; scripts/test.sh builds it.
const nextImage, nextVersion = "localhost/longhorn-manager:next", "next"

// A setting and a field that the next release has and the old release does not know. The program of the next release
// knows the setting, but not the field. The test adds the field to the definitions, and stores values in it.
const (
	settingOfNext = "settings.longhorn.io/setting-of-the-next-release"
	fieldOfNext   = "fieldOfTheNextRelease"
)

// release is a version of the daemon, and through the daemon of the data plane.
type release struct{ image, version string }

// releases are two releases whose daemons run side by side, with the objects and data that must outlive that.
type releases struct {
	c         *cluster.Cluster
	api       restAPI
	namespace string
	old, next release
	// kept is the volume of claim "kept". It has a file with the checksum sum. Each phase attaches and detaches it.
	kept, sum string
	fields    []field
	restarts  map[kubetypes.UID]int32 // of the daemons that were seen
}

// field is the place of a value: the spec or status of an object.
type field struct{ kind, name, part string }

func (f field) String() string { return f.part + " of " + f.kind + "/" + f.name }

// startReleases creates the volume, the setting and the fields, and deletes them when the test ends.
func startReleases(ctx context.Context, t *testing.T, c *cluster.Cluster, ns string) *releases {
	t.Helper()
	r := &releases{c: c, api: restOf(ctx, t, c), namespace: ns, next: release{nextImage, nextVersion}, restarts: map[kubetypes.UID]int32{}}
	r.kept = claim(ctx, t, c, ns, "kept", "32Mi")
	pod(ctx, t, c, ns, "kept", "kept", idle)
	r.sum = writeFile(ctx, t, c, ns, "kept", "/data/file", 4)
	deletePod(ctx, t, c, ns, "kept")
	waitVolume(ctx, t, c, r.kept, ".status.state", "detached")

	was := versions(ctx, t, c)
	require.Len(t, was, 1, "versions of the data planes")
	r.old = release{c.Must(ctx, t, "-n", types.Namespace, "get", "daemonset/longhorn-manager", "-o", "jsonpath={.spec.template.spec.containers[0].image}"), was[0]}
	require.NoError(t, c.Apply(ctx, object("Setting", strings.TrimPrefix(settingOfNext, "settings.longhorn.io/"), `value: "7"`)))
	t.Cleanup(func() {
		c.Must(context.WithoutCancel(ctx), t, "-n", types.Namespace, "delete", settingOfNext, "--ignore-not-found")
	})
	r.fields = []field{{"volumes.longhorn.io", r.kept, "spec"}, {"volumes.longhorn.io", r.kept, "status"}, {"nodes.longhorn.io", nodes[0], "spec"}}
	for _, f := range r.fields {
		r.define(ctx, t, f)
	}
	for _, pod := range r.daemons(ctx, t) {
		r.restarts[pod.UID] = restartsOf(pod)
	}
	t.Cleanup(func() { r.all(context.WithoutCancel(ctx), t, r.old) })
	return r
}

// define adds a field to the definition of an object, as the next release's manifests would, and stores a value in it.
// The field is removed when the test ends.
func (r *releases) define(ctx context.Context, t *testing.T, f field) {
	t.Helper()
	path := "/spec/versions/0/schema/openAPIV3Schema/properties/" + f.part + "/properties/" + fieldOfNext
	patch := []string{"patch", "crd", f.kind, "--type=json", "-p"}
	r.c.Must(ctx, t, append(patch, fmt.Sprintf(`[{"op":"add","path":%q,"value":{"type":"string"}}]`, path))...)
	t.Cleanup(func() {
		r.c.Must(context.WithoutCancel(ctx), t, append(patch, fmt.Sprintf(`[{"op":"remove","path":%q}]`, path))...)
	})
	store := []string{"-n", types.Namespace, "patch", f.kind, f.name, "--type=merge", "-p", fmt.Sprintf(`{%q:{%q:"kept"}}`, f.part, fieldOfNext)}
	if f.part == "status" {
		store = append(store, "--subresource=status")
	}
	cluster.Eventually(ctx, t, 30*time.Second, "the API server stores the new field of "+f.String(), func(ctx context.Context) error {
		if _, err := r.c.Kubectl(ctx, store...); err != nil {
			return err
		}
		value, err := r.value(ctx, f)
		if err == nil && value != "kept" {
			err = fmt.Errorf("it has %q", value)
		}
		return err
	})
}

func (r *releases) value(ctx context.Context, f field) (string, error) {
	return r.c.Kubectl(ctx, "-n", types.Namespace, "get", f.kind, f.name, "-o", fmt.Sprintf("jsonpath={.%s.%s}", f.part, fieldOfNext))
}

// lostFields lists the fields whose values are gone.
func (r *releases) lostFields(ctx context.Context, t *testing.T) (lost []string) {
	t.Helper()
	for _, f := range r.fields {
		value, err := r.value(ctx, f)
		require.NoError(t, err)
		if value != "kept" {
			lost = append(lost, f.String())
		}
	}
	return lost
}

// apart lets each node's daemon keep its release when the DaemonSet gets another image.
func (r *releases) apart(ctx context.Context, t *testing.T) {
	t.Helper()
	r.strategy(ctx, t, `{"type":"OnDelete","rollingUpdate":null}`)
}

// all gives a release to all daemons at once, as the manifests do.
func (r *releases) all(ctx context.Context, t *testing.T, to release) {
	t.Helper()
	r.setImage(ctx, t, to)
	r.strategy(ctx, t, `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"100%"}}`)
	r.c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=180s")
}

func (r *releases) strategy(ctx context.Context, t *testing.T, strategy string) {
	t.Helper()
	r.c.Must(ctx, t, "-n", types.Namespace, "patch", "daemonset/longhorn-manager", "--type=merge", "-p", `{"spec":{"updateStrategy":`+strategy+`}}`)
}

func (r *releases) setImage(ctx context.Context, t *testing.T, to release) {
	t.Helper()
	r.c.Must(ctx, t, "-n", types.Namespace, "set", "image", "daemonset/longhorn-manager", "longhorn-manager="+to.image)
}

// replace replaces the daemon of one node by a daemon of a release. Call apart before it.
func (r *releases) replace(ctx context.Context, t *testing.T, node string, to release) {
	t.Helper()
	was := r.daemons(ctx, t)[node].UID
	r.setImage(ctx, t, to)
	r.c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", "-l", "app=longhorn-manager", "--field-selector", "spec.nodeName="+node, "--timeout=60s")
	cluster.Eventually(ctx, t, 90*time.Second, "the daemon of "+node+" is "+to.version+" and ready", func(ctx context.Context) error {
		pod := r.daemons(ctx, t)[node]
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if pod.UID == was || !ready || imageOf(pod) != to.image {
			return fmt.Errorf("its pod %q has the image %s, ready: %t", pod.Name, imageOf(pod), ready)
		}
		return nil
	})
}

// lead makes the daemon of a node the leader. It replaces the daemons that lead before that one, with their own
// release.
func (r *releases) lead(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	for range 20 {
		now, of := r.leader(ctx, t)
		if now == node {
			return
		}
		r.replace(ctx, t, now, of)
	}
	t.Fatalf("the daemon of %s never led", node)
}

// leader returns the node whose daemon leads, and this daemon's release.
func (r *releases) leader(ctx context.Context, t *testing.T) (node string, of release) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "there is a leader", func(ctx context.Context) (err error) {
		node, err = leader(ctx, r.c)
		return err
	})
	of = r.old
	if imageOf(r.daemons(ctx, t)[node]) == r.next.image {
		of = r.next
	}
	return node, of
}

// follower returns a node whose daemon does not lead.
func (r *releases) follower(ctx context.Context, t *testing.T) string {
	t.Helper()
	node, _ := r.leader(ctx, t)
	return without(nodes, node)[0]
}

// nodeWith returns the only node whose daemon has a release.
func (r *releases) nodeWith(ctx context.Context, t *testing.T, of release) string {
	t.Helper()
	var with []string
	for node, pod := range r.daemons(ctx, t) {
		if imageOf(pod) == of.image {
			with = append(with, node)
		}
	}
	require.Len(t, with, 1, "nodes with release %s", of.version)
	return with[0]
}

// daemons returns the daemons' pods that are not being deleted, by node.
func (r *releases) daemons(ctx context.Context, t *testing.T) map[string]corev1.Pod {
	t.Helper()
	list, err := r.c.Kube.CoreV1().Pods(types.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=longhorn-manager"})
	require.NoError(t, err)
	byNode := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			byNode[pod.Spec.NodeName] = pod
		}
	}
	return byNode
}

func imageOf(pod corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return "" // there is no such pod
	}
	return pod.Spec.Containers[0].Image
}

func restartsOf(pod corev1.Pod) (n int32) {
	for _, s := range pod.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}

// work creates, attaches, detaches and deletes a volume, and attaches and detaches another one, while a release leads.
// It checks that this release leads all the time, and that no daemon restarts. It also checks the setting that the old
// release does not know.
func (r *releases) work(ctx context.Context, t *testing.T, leads release) {
	t.Helper()
	began := time.Now()
	node, of := r.leader(ctx, t)
	require.Equal(t, leads, of, "the release of the leader")
	fresh := claim(ctx, t, r.c, r.namespace, "fresh", "32Mi")
	startPod(ctx, t, r.c, r.namespace, "fresh", "fresh", idle)
	startPod(ctx, t, r.c, r.namespace, "kept", "kept", idle)
	r.c.Must(ctx, t, "-n", r.namespace, "wait", "--for=condition=Ready", "pod/fresh", "pod/kept", "--timeout=180s")
	writeFile(ctx, t, r.c, r.namespace, "fresh", "/data/file", 4)
	assert.Equal(t, r.sum, sumInPod(ctx, t, r.c, r.namespace, "kept", "/data/file"), "the sum of a file of before")
	r.c.Must(ctx, t, "-n", r.namespace, "delete", "pod", "fresh", "kept", "--timeout=90s")
	for _, volume := range []string{fresh, r.kept} {
		waitVolume(ctx, t, r.c, volume, ".status.state", "detached")
	}
	r.c.Must(ctx, t, "-n", r.namespace, "delete", "pvc", "fresh", "--timeout=60s")
	waitVolumeGone(ctx, t, r.c, fresh)
	tags := r.api.node(ctx, t, nodes[0]).Tags
	r.api.setTags(ctx, t, nodes[0], append(slices.Clone(tags), "e2e-releases")...)
	r.api.setTags(ctx, t, nodes[0], tags...)

	known := map[release]string{r.old: "7 false UnknownName", r.next: "7 true "}
	waitField(ctx, t, r.c, settingOfNext, `{.value} {.status.applied} {.status.conditions[?(@.type=="Valid")].reason}`, known[leads])
	if now, of := r.leader(ctx, t); now != node || of != leads {
		t.Errorf("%s of release %s led, now %s of release %s does", node, leads.version, now, of.version)
	}
	r.checkDaemons(ctx, t)
	r.checkWritten(t, began)
	t.Logf("worked with release %s leading for %s; lost so far: %q", leads.version, time.Since(began).Round(time.Second), r.lostFields(ctx, t))
}

// checkDaemons fails the test if a daemon has restarted since the last check, or since it was created.
func (r *releases) checkDaemons(ctx context.Context, t *testing.T) {
	t.Helper()
	for node, pod := range r.daemons(ctx, t) {
		if now := restartsOf(pod); now != r.restarts[pod.UID] {
			log, err := r.c.Kubectl(ctx, "-n", types.Namespace, "logs", pod.Name, "--previous", "--tail=20")
			t.Errorf("the daemon of %s, image %s, restarted %d times; it said last: %s (%v)", node, imageOf(pod), now-r.restarts[pod.UID], log, err)
			r.restarts[pod.UID] = now
		}
	}
}

// checkWritten fails the test unless the daemons wrote every object that has a field which only the next release knows.
func (r *releases) checkWritten(t *testing.T, since time.Time) {
	t.Helper()
	writes, _ := writesSince(t, since)
	for _, f := range r.fields {
		resource, _, _ := strings.Cut(f.kind, ".")
		suffix := " " + resource + " " + f.name + " " + strings.TrimPrefix(f.part, "spec")
		if !slices.ContainsFunc(writes, func(write string) bool { return strings.HasSuffix(write, suffix) }) {
			t.Errorf("no daemon wrote %s: that it keeps the field is not tested; written were %q", f, writes)
		}
	}
}
