package inspect

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestWhatClaimsRestOnIsRead has claims, pods, Events, PersistentVolumes and attachments in the cluster.
func TestWhatClaimsRestOnIsRead(t *testing.T) {
	c, _, kube := cluster()
	using := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	using.Namespace, using.Name = "shop", "db"
	other := &corev1.Pod{}
	other.Namespace, other.Name = "shop", "web"
	event := &corev1.Event{Reason: "FailedMount"}
	event.Namespace, event.Name = "shop", "e"
	pv := &corev1.PersistentVolume{}
	pv.Name = "pv-1"
	ours, foreign := &storagev1.VolumeAttachment{}, &storagev1.VolumeAttachment{}
	ours.Name, ours.Spec.Attacher, foreign.Name, foreign.Spec.Attacher = "a", types.DriverName, "b", "other.example"
	for _, o := range []runtime.Object{using, other, event, pv, ours, foreign} {
		if err := kube.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	var lists []string // resource, namespace and fields
	kube.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.ListAction).GetListRestrictions()
		lists = append(lists, action.GetResource().Resource+" "+action.GetNamespace()+" "+r.Fields.String())
		return false, nil, nil
	})
	for namespace, want := range map[string][]string{
		"": {
			"persistentvolumeclaims  ", "pods  status.phase=Pending", "events  involvedObject.kind=PersistentVolumeClaim,type=Warning",
			"events  involvedObject.kind=Pod,reason=FailedMount", "events  involvedObject.kind=Pod,reason=FailedAttachVolume", "events  involvedObject.kind=Pod,reason=FailedMapVolume",
		},
		"shop": {
			"persistentvolumeclaims shop ", "pods shop ", "events shop involvedObject.kind=PersistentVolumeClaim,type=Warning", "events shop involvedObject.kind=Pod,reason=FailedMount",
		},
	} {
		lists, c.ClaimNamespace = nil, namespace
		s, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range want {
			if !slices.Contains(lists, list) {
				t.Errorf("of namespace %q it does not read %q: %s", namespace, list, strings.Join(lists, "\n"))
			}
		}
		if len(s.UserPods) != 1 || s.UserPods[0].Name != "db" || len(s.Events) != 1 || len(s.PersistentVolumes) != 1 || len(s.KubeAttachments) != 1 || s.KubeAttachments[0].Name != "a" {
			t.Errorf("of namespace %q it reads %v, %v, %v, %v", namespace, s.UserPods, s.Events, s.PersistentVolumes, s.KubeAttachments)
		}
	}
}

func TestClaimsOfThisDriverAreOffered(t *testing.T) {
	claim := func(name, pv string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Namespace, c.Name, c.Spec.VolumeName = "shop", name, pv
		return c
	}
	volume := func(name, driver string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{}
		pv.Name, pv.Spec.CSI = name, &corev1.CSIPersistentVolumeSource{Driver: driver}
		return pv
	}
	s := &explain.Snapshot{
		Claims:            []*corev1.PersistentVolumeClaim{claim("waits", ""), claim("ours", "pv-1"), claim("theirs", "pv-2")},
		PersistentVolumes: []*corev1.PersistentVolume{volume("pv-1", types.DriverName), volume("pv-2", "other.example")},
	}
	if got := ClaimNames(s); !slices.Equal(got, []string{"shop/ours", "shop/waits"}) {
		t.Errorf("offered are %q", got)
	}
}
