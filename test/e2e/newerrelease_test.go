package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// newerRelease adds a property "newer" to the definitions at these places, as the manifest of a newer release would.
// The property is removed when the test ends.
func newerRelease(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const property = `{"type":"object","properties":{"value":{"type":"string"}}}`
	for kind, places := range map[string][]string{
		"volumes":  {"spec", "status", "status/properties/conditions/items"},
		"engines":  {"spec", "status", "status/properties/conditions/items"},
		"replicas": {"spec", "status", "status/properties/conditions/items"},
		"nodes": {
			"spec", "spec/properties/disks/additionalProperties", "status", "status/properties/conditions/items",
			"status/properties/diskStatus/additionalProperties", "status/properties/diskStatus/additionalProperties/properties/conditions/items",
		},
	} {
		for _, place := range places {
			path := "/spec/versions/0/schema/openAPIV3Schema/properties/" + place + "/properties/newer"
			c.Must(ctx, t, "patch", "crd", kind+".longhorn.io", "--type=json", "-p", fmt.Sprintf(`[{"op":"add","path":%q,"value":%s}]`, path, property))
			t.Cleanup(func() {
				c.Must(context.WithoutCancel(ctx), t, "patch", "crd", kind+".longhorn.io", "--type=json", "-p", fmt.Sprintf(`[{"op":"remove","path":%q}]`, path))
			})
		}
	}
}

// newerCase is an object that the newer release has written, and the changes that this release makes to it.
type newerCase[T datastore.Object] struct {
	store                    *datastore.Store[T]
	late                     *datastore.Store[T] // the store of another process, which does not see the writes of store
	kind, resource, name     string
	spec, status             string // as the newer release wrote them
	changeSpec, changeStatus func(T)
	wantSpec, wantStatus     string // as this release leaves them
}

// run writes through the store. It expects that nothing else changes, and that a write of a stale version is refused.
func (n newerCase[T]) run(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	var stale T
	// Delete what an earlier run on this cluster left. The leader's account does it, because users may not delete an
	// engine with an epoch.
	c.Must(ctx, t, "-n", types.Namespace, "delete", n.resource, n.name, "--ignore-not-found", "--as=system:serviceaccount:"+types.Namespace+":"+types.LeaderAccount)
	// The API server needs a moment to learn of a new property. Until then, it refuses or drops the property.
	cluster.Eventually(ctx, t, 30*time.Second, "the API server keeps what the newer release writes", func(ctx context.Context) error {
		if err := c.Apply(ctx, object(n.kind, n.name, "spec: "+n.spec)); err != nil {
			return err
		}
		if _, err := c.Kubectl(ctx, "-n", types.Namespace, "patch", n.resource, n.name, "--subresource=status", "--type=merge", "-p", `{"status":`+n.status+`}`); err != nil {
			return err
		}
		spec, status := n.read(ctx, t, c)
		if !assert.ObjectsAreEqual(parsed(t, n.spec), subset(spec, parsed(t, n.spec))) || !assert.ObjectsAreEqual(parsed(t, n.status), status) {
			return fmt.Errorf("spec %v, status %v", spec, status)
		}
		return nil
	})
	cluster.Eventually(ctx, t, 30*time.Second, "the cache shows it", func(ctx context.Context) error {
		live, err := n.store.Live(ctx, n.name)
		if err != nil {
			return err
		}
		if stale, err = n.store.Get(n.name); err == nil && stale.GetResourceVersion() != live.GetResourceVersion() {
			err = fmt.Errorf("version %s is not %s", stale.GetResourceVersion(), live.GetResourceVersion())
		}
		return err
	})
	_, err := n.late.Live(ctx, n.name)
	require.NoError(t, err)
	spec, status := n.read(ctx, t, c)
	wantSpec := merged(spec, parsed(t, n.wantSpec))

	obj := stale.DeepCopyObject().(T)
	n.changeSpec(obj)
	n.changeStatus(obj) // Update ignores this change
	written, err := n.store.Update(ctx, obj)
	require.NoError(t, err)
	gotSpec, gotStatus := n.read(ctx, t, c)
	assert.Equal(t, wantSpec, gotSpec, "the spec after Update")
	assert.Equal(t, status, gotStatus, "the status after Update")

	n.refused(ctx, t, stale)

	n.changeStatus(written)
	written, err = n.store.UpdateStatus(ctx, written)
	require.NoError(t, err)
	gotSpec, gotStatus = n.read(ctx, t, c)
	assert.Equal(t, wantSpec, gotSpec, "the spec after UpdateStatus")
	assert.Equal(t, parsed(t, n.wantStatus), gotStatus, "the status after UpdateStatus")

	again, err := n.store.UpdateStatus(ctx, written.DeepCopyObject().(T))
	require.NoError(t, err)
	assert.Equal(t, written.GetResourceVersion(), again.GetResourceVersion(), "after a write that changes nothing")

	// The stale object's lists no longer exist: a patch within them cannot be applied.
	_, err = n.late.Live(ctx, n.name)
	require.NoError(t, err)
	c.Must(ctx, t, "-n", types.Namespace, "patch", n.resource, n.name, "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":null}}`)
	n.refused(ctx, t, written)
}

// refused checks that every form of a write of a stale version, which late has read, is a conflict. The API server
// refuses it.
func (n newerCase[T]) refused(ctx context.Context, t *testing.T, stale T) {
	t.Helper()
	for name, write := range map[string]func(obj T) (T, error){
		"Update":                     func(obj T) (T, error) { n.changeSpec(obj); return n.late.Update(ctx, obj) },
		"UpdateStatus":               func(obj T) (T, error) { n.changeStatus(obj); return n.late.UpdateStatus(ctx, obj) },
		"an Update of nothing":       func(obj T) (T, error) { return n.late.Update(ctx, obj) },
		"an UpdateStatus of nothing": func(obj T) (T, error) { return n.late.UpdateStatus(ctx, obj) },
	} {
		_, err := write(stale.DeepCopyObject().(T))
		assert.True(t, apierrors.IsConflict(err), "%s of a stale version: %v", name, err)
	}
}

// read returns the spec and the status in their JSON form.
func (n newerCase[T]) read(ctx context.Context, t *testing.T, c *cluster.Cluster) (spec, status map[string]any) {
	t.Helper()
	o := parsed(t, c.Must(ctx, t, "-n", types.Namespace, "get", n.resource, n.name, "-o", "json"))
	spec, _ = o["spec"].(map[string]any)
	status, _ = o["status"].(map[string]any)
	return spec, status
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &o), text)
	return o
}

// subset returns those members of o that like has too.
func subset(o, like map[string]any) map[string]any {
	part := map[string]any{}
	for key, value := range like {
		part[key] = o[key]
		inner, ok := value.(map[string]any)
		if was, isObject := o[key].(map[string]any); ok && isObject {
			part[key] = subset(was, inner)
		}
	}
	return part
}

// merged returns o with the members of over added or replaced.
func merged(o, over map[string]any) map[string]any {
	result := map[string]any{}
	for key, value := range o {
		result[key] = value
	}
	for key, value := range over {
		inner, ok := value.(map[string]any)
		if was, isObject := o[key].(map[string]any); ok && isObject {
			value = merged(was, inner)
		}
		result[key] = value
	}
	return result
}

// TestAPIServerKeepsWhatANewerReleaseWrote: the definitions come from a newer release, and this release writes.
func TestAPIServerKeepsWhatANewerReleaseWrote(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	newerRelease(ctx, t, c)
	o := datastore.Options{
		Kube: c.Kube, Longhorn: c.Longhorn, Namespace: types.Namespace,
		Kinds: []datastore.Kind{datastore.Volumes, datastore.Engines, datastore.Replicas, datastore.Nodes},
	}
	d, late := datastore.New(o), datastore.New(o)
	running, cancel := context.WithCancel(ctx)
	d.Start(running)
	t.Cleanup(func() { cancel(); d.Wait() })
	require.NoError(t, d.WaitForSync(ctx))

	const newer = `"newer":{"value":"kept"}`
	// Two conditions before and after. The message of the second one changes.
	before := `"conditions":[{"type":"A","status":"True",` + newer + `},{"type":"B","status":"True",` + newer + `}]`
	after := `"conditions":[{"type":"A","status":"True",` + newer + `},{"type":"B","status":"True","message":"changed",` + newer + `}]`
	change := func(conditions []longhorn.Condition) { conditions[1].Message = "changed" }

	t.Run("Volume", func(t *testing.T) {
		newerCase[*longhorn.Volume]{
			store: d.Volumes, late: late.Volumes, kind: "Volume", resource: "volumes.longhorn.io", name: "newer-v",
			spec:         `{"size":"2097152","numberOfReplicas":3,` + newer + `}`,
			changeSpec:   func(v *longhorn.Volume) { v.Spec.NumberOfReplicas = 2 },
			wantSpec:     `{"numberOfReplicas":2}`,
			status:       `{"state":"detached",` + newer + `,` + before + `}`,
			changeStatus: func(v *longhorn.Volume) { v.Status.State = longhorn.VolumeStateAttaching; change(v.Status.Conditions) },
			wantStatus:   `{"state":"attaching",` + newer + `,` + after + `}`,
		}.run(ctx, t, c)
	})
	t.Run("Engine", func(t *testing.T) {
		newerCase[*longhorn.Engine]{
			store: d.Engines, late: late.Engines, kind: "Engine", resource: "engines.longhorn.io", name: "newer-e",
			spec:       `{"volumeName":"v","volumeSize":"2097152",` + newer + `}`,
			changeSpec: func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateRunning },
			wantSpec:   `{"desireState":"running"}`,
			status:     `{"session":"s","epoch":{"generation":1,"counter":1,"members":["a","b"]},` + newer + `,` + before + `}`,
			changeStatus: func(e *longhorn.Engine) {
				e.Status.Epoch.Counter, e.Status.Epoch.Members = 2, []string{"b"}
				change(e.Status.Conditions)
			},
			wantStatus: `{"session":"s","epoch":{"generation":1,"counter":2,"members":["b"]},` + newer + `,` + after + `}`,
		}.run(ctx, t, c)
	})
	t.Run("Node", func(t *testing.T) {
		newerCase[*longhorn.Node]{
			store: d.Nodes, late: late.Nodes, kind: "Node", resource: "nodes.longhorn.io", name: "newer-n",
			spec:       `{"allowScheduling":true,"disks":{"d":{"path":"/mnt/d",` + newer + `}},` + newer + `}`,
			changeSpec: func(n *longhorn.Node) { disk := n.Spec.Disks["d"]; disk.StorageReserved = 7; n.Spec.Disks["d"] = disk },
			wantSpec:   `{"disks":{"d":{"storageReserved":7}}}`,
			status:     `{"zone":"z","diskStatus":{"d":{"storageMaximum":5,` + newer + `,` + before + `}},` + newer + `,` + before + `}`,
			changeStatus: func(n *longhorn.Node) {
				n.Status.Zone = "y"
				change(n.Status.Conditions)
				disk := n.Status.DiskStatus["d"]
				disk.StorageMaximum = 6
				change(disk.Conditions)
				n.Status.DiskStatus["d"] = disk
			},
			wantStatus: `{"zone":"y","diskStatus":{"d":{"storageMaximum":6,` + newer + `,` + after + `}},` + newer + `,` + after + `}`,
		}.run(ctx, t, c)
	})
	t.Run("Replica", func(t *testing.T) {
		replica := newerCase[*longhorn.Replica]{
			store: d.Replicas, late: late.Replicas, kind: "Replica", resource: "replicas.longhorn.io", name: "newer-r",
			spec:         `{"volumeName":"v","volumeSize":"2097152",` + newer + `}`,
			changeSpec:   func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" },
			wantSpec:     `{"failedAt":"2030-01-01T00:00:00Z"}`,
			status:       `{"ip":"192.0.2.1",` + newer + `,` + before + `}`,
			changeStatus: func(r *longhorn.Replica) { r.Status.IP = ""; change(r.Status.Conditions) },
			wantStatus:   `{"ip":"",` + newer + `,` + after + `}`,
		}
		replica.run(ctx, t, c)
		replica.gone(ctx, t, c)
	})
}

// gone checks that a write neither creates a deleted object again nor changes another object of the same name.
func (n newerCase[T]) gone(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	c.Must(ctx, t, "-n", types.Namespace, "patch", n.resource, n.name, "--subresource=status", "--type=merge", "-p", `{"status":`+n.status+`}`)
	old, err := n.late.Live(ctx, n.name)
	require.NoError(t, err)
	c.Must(ctx, t, "-n", types.Namespace, "delete", n.resource, n.name)
	obj := old.DeepCopyObject().(T)
	n.changeSpec(obj)
	_, err = n.late.Update(ctx, obj)
	assert.True(t, apierrors.IsNotFound(err), "Update of a deleted object: %v", err)
	obj = old.DeepCopyObject().(T)
	n.changeStatus(obj)
	_, err = n.late.UpdateStatus(ctx, obj)
	assert.True(t, apierrors.IsNotFound(err), "UpdateStatus of a deleted object: %v", err)
	_, err = n.late.Live(ctx, n.name)
	assert.True(t, apierrors.IsNotFound(err), "what the writes left: %v", err)
	require.NoError(t, c.Apply(ctx, object(n.kind, n.name, "spec: "+n.spec)))
	n.refused(ctx, t, old)
}

// TestAPIServerRefusesAStaleLease checks the kind of Kubernetes with which the product fences.
func TestAPIServerRefusesAStaleLease(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	o := datastore.Options{Kube: c.Kube, Longhorn: c.Longhorn, Namespace: types.Namespace}
	leases, late := datastore.New(o).Leases, datastore.New(o).Leases
	holder, other := "a", "b"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "newer-l", Namespace: types.Namespace}}
	lease.Spec.HolderIdentity = &holder
	first, err := leases.Create(ctx, lease)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, leases.Delete(context.WithoutCancel(ctx), "newer-l", datastore.Preconditions{}))
	})
	stale, err := late.Live(ctx, "newer-l")
	require.NoError(t, err)
	now := metav1.NowMicro()
	first.Spec.RenewTime = &now
	first, err = leases.Update(ctx, first)
	require.NoError(t, err)
	assert.Equal(t, holder, *first.Spec.HolderIdentity)
	_, err = late.Update(ctx, stale.DeepCopy())
	assert.True(t, apierrors.IsConflict(err), "an Update of nothing: %v", err)
	stale.Spec.HolderIdentity = &other
	_, err = late.Update(ctx, stale)
	assert.True(t, apierrors.IsConflict(err), "another takes it: %v", err)
	first.Spec.HolderIdentity, first.Spec.RenewTime = nil, nil
	first, err = leases.Update(ctx, first)
	require.NoError(t, err)
	assert.Equal(t, coordinationv1.LeaseSpec{}, first.Spec, "released")
}
