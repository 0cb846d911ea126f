package sidecar

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

func TestAClaimSaysThatItsVolumeKeepsItsAttributes(t *testing.T) {
	const message = `volumeAttributesClassName "gold": volume attributes classes are not supported; the volume stays unchanged`
	resizing := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}
	refused := corev1.PersistentVolumeClaimCondition{Type: conditionModifyError, Status: corev1.ConditionTrue, Reason: "NotOffered", Message: message}
	foreign := corev1.PersistentVolumeClaimCondition{Type: conditionModifyError, Status: corev1.ConditionTrue, Reason: "Other", Message: "x"}
	for _, c := range []struct {
		name       string
		class      string
		current    string
		driver     string
		conditions []corev1.PersistentVolumeClaimCondition
		want       []corev1.PersistentVolumeClaimCondition
		event      string
	}{
		{name: "no class → silence", driver: driverName},
		{
			name: "a class → a condition beside the others, and an Event", class: "gold", driver: driverName, conditions: []corev1.PersistentVolumeClaimCondition{resizing},
			want: []corev1.PersistentVolumeClaimCondition{refused, resizing}, event: "Warning VolumeModifyFailed " + message,
		},
		{name: "the claim says so already → nothing is written", class: "gold", driver: driverName, conditions: []corev1.PersistentVolumeClaimCondition{refused}, want: []corev1.PersistentVolumeClaimCondition{refused}},
		{name: "the volume has the class, by a PersistentVolume that a person made → silence", class: "gold", current: "gold", driver: driverName},
		{
			name: "the class is gone → the condition goes, too", driver: driverName, conditions: []corev1.PersistentVolumeClaimCondition{resizing, refused},
			want: []corev1.PersistentVolumeClaimCondition{resizing},
		},
		{name: "another writer's condition → it stays", driver: driverName, conditions: []corev1.PersistentVolumeClaimCondition{foreign}, want: []corev1.PersistentVolumeClaimCondition{foreign}},
		{name: "a volume of another driver → silence", class: "gold", driver: "other.example.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pvc := claim(func(pvc *corev1.PersistentVolumeClaim) {
				pvc.Spec.VolumeName = "pv-1"
				pvc.Status.Conditions = c.conditions
				if c.class != "" {
					pvc.Spec.VolumeAttributesClassName = ptr.To(c.class)
				}
				if c.current != "" {
					pvc.Status.CurrentVolumeAttributesClassName = ptr.To(c.current)
				}
			})
			kube := fake.NewClientset(pvc, &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: c.driver, VolumeHandle: "v"}}},
			})
			factory := informers.NewSharedInformerFactory(kube, 0)
			recorder := record.NewFakeRecorder(1)
			a, err := newAttributesClasses(optionsFor(kube), factory, recorder)
			require.NoError(t, err)
			factory.StartWithContext(t.Context())
			factory.WaitForCacheSync(t.Context().Done())
			require.NoError(t, a.sync(t.Context(), types.NamespacedName{Namespace: pvc.Namespace, Name: pvc.Name}))

			got, err := kube.CoreV1().PersistentVolumeClaims(pvc.Namespace).Get(t.Context(), pvc.Name, metav1.GetOptions{})
			require.NoError(t, err)
			for i := range got.Status.Conditions {
				got.Status.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			assert.ElementsMatch(t, c.want, got.Status.Conditions)
			close(recorder.Events)
			assert.Equal(t, c.event, <-recorder.Events)
		})
	}
}
