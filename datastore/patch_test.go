package datastore

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestWhatAPatchSays(t *testing.T) {
	base := &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "u", ResourceVersion: "7"}}
	base.Spec = longhorn.VolumeSpec{Size: 2 << 20, NumberOfReplicas: 3, NodeSelector: []string{"a"}}
	base.Status = longhorn.VolumeStatus{State: longhorn.VolumeStateDetached, Conditions: []longhorn.Condition{{Type: "A"}, {Type: "B"}}}
	for _, c := range []struct {
		name   string
		part   half
		change func(v *longhorn.Volume)
		want   string
	}{
		{"nothing changed → the version alone", notStatus, func(*longhorn.Volume) {}, `{"metadata":{"resourceVersion":"7","uid":"u"}}`},
		{
			"the caches' managed fields and another UID of the caller's → the version alone", notStatus,
			func(v *longhorn.Volume) { v.ManagedFields, v.UID = []metav1.ManagedFieldsEntry{{Manager: "m"}}, "" },
			`{"metadata":{"resourceVersion":"7","uid":"u"}}`,
		},
		{
			"members set and taken away → a merge patch of them", notStatus,
			func(v *longhorn.Volume) {
				v.Spec.NumberOfReplicas, v.Spec.NodeSelector, v.Finalizers = 2, nil, []string{"f"}
			},
			`{"metadata":{"finalizers":["f"],"resourceVersion":"7","uid":"u"},"spec":{"nodeSelector":null,"numberOfReplicas":2}}`,
		},
		{
			"the status and the spec changed → of the status what is written, and the spec not", status,
			func(v *longhorn.Volume) { v.Spec.NumberOfReplicas, v.Status.State = 2, longhorn.VolumeStateAttached },
			`{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"state":"attached"}}`,
		},
		{
			"all elements of a list replaced → the list", status,
			func(v *longhorn.Volume) { v.Status.Conditions = []longhorn.Condition{} },
			`{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"conditions":[]}}`,
		},
		{
			"an element of a list changed → a JSON patch", status,
			func(v *longhorn.Volume) { v.Status.Conditions[1].Reason = "R"; v.Status.State = "" },
			`[{"op":"add","path":"/metadata/uid","value":"u"},{"op":"add","path":"/metadata/resourceVersion","value":"7"},` +
				`{"op":"add","path":"/status/conditions/1/reason","value":"R"},{"op":"add","path":"/status/state","value":""}]`,
		},
		{
			"the elements of a list change places → moves", status,
			func(v *longhorn.Volume) {
				v.Status.Conditions = []longhorn.Condition{{Type: "B"}, {Type: "A", Status: "True"}}
			},
			`[{"op":"add","path":"/metadata/uid","value":"u"},{"op":"add","path":"/metadata/resourceVersion","value":"7"},` +
				`{"op":"move","path":"/status/conditions/0","from":"/status/conditions/1"},{"op":"add","path":"/status/conditions/1/status","value":"True"}]`,
		},
		{
			"two elements of one type, which must not be → the list", status,
			func(v *longhorn.Volume) { v.Status.Conditions[1].Type = "A" },
			`{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"conditions":[` +
				`{"lastProbeTime":"","lastTransitionTime":"","message":"","reason":"","status":"","type":"A"},` +
				`{"lastProbeTime":"","lastTransitionTime":"","message":"","reason":"","status":"","type":"A"}]}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := base.DeepCopy()
			c.change(v)
			p, err := newPatch(base, v, c.part)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(p.body))
		})
	}
}

// TestElementsOfOurListsCanBeToldApart: each element of a list of objects needs a field of keyFields.
// Otherwise the list would be written as a whole, without the members that a newer release has added to its elements.
func TestElementsOfOurListsCanBeToldApart(t *testing.T) {
	lists := 0
	var look func(path string, of reflect.Type)
	look = func(path string, of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Map:
			look(path, of.Elem())
		case reflect.Slice:
			if of.Elem().Kind() != reflect.Struct {
				return
			}
			lists++
			ok := slices.ContainsFunc(reflect.VisibleFields(of.Elem()), func(f reflect.StructField) bool {
				return slices.Contains(keyFields, f.Tag.Get("json"))
			})
			assert.True(t, ok, "%s has elements without a type: make patch.go know what tells them apart", path)
			look(path, of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				if f := of.Field(i); f.Type != reflect.TypeFor[metav1.ObjectMeta]() {
					look(path+"."+f.Name, f.Type)
				}
			}
		}
	}
	for _, obj := range []Object{
		&longhorn.Volume{}, &longhorn.VolumeAttachment{}, &longhorn.Engine{}, &longhorn.Replica{}, &longhorn.Node{}, &longhorn.Setting{}, &longhorn.InstanceManager{}, &longhorn.Snapshot{},
	} {
		look(reflect.TypeOf(obj).Elem().Name(), reflect.TypeOf(obj).Elem())
	}
	assert.Equal(t, 13, lists, "lists of objects that were looked at")
}

// TestAPatchOfALineChangesOnePoint: members that a newer release adds to a point or a base stay.
func TestAPatchOfALineChangesOnePoint(t *testing.T) {
	base := &longhorn.Engine{ObjectMeta: metav1.ObjectMeta{Name: "e", UID: "u", ResourceVersion: "7"}}
	base.Status.Line = &longhorn.Line{
		Counter: 8, Points: []longhorn.LinePoint{{Number: 4, Nonce: 61, State: "ready"}, {Number: 8, Nonce: 17, State: "intended"}},
		Bases: []longhorn.LineBase{{Number: 4, Nonce: 61, By: "a"}, {Number: 4, Nonce: 61, By: "b"}},
	}
	e := base.DeepCopy()
	e.Status.Line.Points[1].State = longhorn.PointStateReady
	e.Status.Line.Bases = e.Status.Line.Bases[1:]
	p, err := newPatch(base, e, status)
	require.NoError(t, err)
	assert.Equal(t, `[{"op":"add","path":"/metadata/uid","value":"u"},{"op":"add","path":"/metadata/resourceVersion","value":"7"},`+
		`{"op":"remove","path":"/status/line/bases/0"},{"op":"add","path":"/status/line/points/1/state","value":"ready"}]`, string(p.body))
}

// BenchmarkPatch measures the cost of a write without its request: a node of ten disks with thirty replicas each, one
// of which left.
func BenchmarkPatch(b *testing.B) {
	base := &longhorn.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"}}
	base.Status.DiskStatus = map[string]longhorn.DiskStatus{}
	for disk := range 10 {
		d := longhorn.DiskStatus{ScheduledReplica: map[string]int64{}, Conditions: []longhorn.Condition{{Type: "Ready"}, {Type: "Schedulable"}}}
		for r := range 30 {
			d.ScheduledReplica[string(rune('a'+disk))+"-r-"+string(rune('a'+r))] = 1 << 30
		}
		base.Status.DiskStatus[string(rune('a'+disk))] = d
	}
	n := base.DeepCopy()
	delete(n.Status.DiskStatus["a"].ScheduledReplica, "a-r-a")
	for b.Loop() {
		if _, err := newPatch(base, n, status); err != nil {
			b.Fatal(err)
		}
	}
}
