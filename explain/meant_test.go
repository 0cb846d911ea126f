package explain

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

func TestWhatMayHaveBeenMeantIsOffered(t *testing.T) {
	w := newWorld()
	w.claimed()
	w.Settings = append(w.Settings, build.Setting(settings.DefaultReplicaCount, "3"))
	for want, ask := range map[string]func() ([]Finding, error){
		`volume "data" does not exist; did you mean: explain claim shop/data`:                   func() ([]Finding, error) { return Volume(&w.Snapshot, "data") },
		`volume "pv-1" does not exist; did you mean: explain pv pv-1`:                           func() ([]Finding, error) { return Volume(&w.Snapshot, "pv-1") },
		`disk "disk-l" does not exist; there are n1/disk-1, n2/disk-1, n3/disk-1`:               func() ([]Finding, error) { return Disk(&w.Snapshot, "", "disk-l") },
		`persistent volume "pv-2" does not exist; did you mean "pv-1"?`:                         func() ([]Finding, error) { return PersistentVolume(&w.Snapshot, "pv-2") },
		`setting "default-replica-cuont" does not exist; did you mean "default-replica-count"?`: func() ([]Finding, error) { return Setting(&w.Snapshot, "default-replica-cuont") },
		`setting "default" does not exist; did you mean "default-replica-count"?`:               func() ([]Finding, error) { return Setting(&w.Snapshot, "default") },
		`setting "replicas" does not exist; there are default-replica-count`:                    func() ([]Finding, error) { return Setting(&w.Snapshot, "replicas") },
	} {
		if _, err := ask(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAPersistentVolumeIsExplainedLikeItsClaim(t *testing.T) {
	w := newWorld()
	_, pv, pod := w.claimed()
	if found, err := PersistentVolume(&w.Snapshot, "pv-1"); err != nil || len(found) != 0 {
		t.Errorf("of one that is well it says %+v, %v", found, err)
	}
	waits(pod)
	w.happens(pod, "FailedMount", `volume "pv-1" : no`, 0)
	if found, err := PersistentVolume(&w.Snapshot, "pv-1"); err != nil || len(found) != 1 || found[0].Object.Kind != KindPod {
		t.Errorf("of one that a pod cannot mount it says %+v, %v", found, err)
	}
	pv.Spec.ClaimRef, pv.Spec.CSI.VolumeHandle = nil, "gone"
	pv.Status.Phase = corev1.VolumeAvailable
	if found, err := PersistentVolume(&w.Snapshot, "pv-1"); err != nil || len(found) != 1 || found[0].Reason != "VolumeMissing" || found[0].Severity != Warning {
		t.Errorf("of one without a volume and a claim it says %+v, %v", found, err)
	}
	pv.Spec.CSI = nil
	if found, err := PersistentVolume(&w.Snapshot, "pv-1"); err != nil || len(found) != 1 || found[0].Reason != "OtherDriver" {
		t.Errorf("of another driver's it says %+v, %v", found, err)
	}
}
