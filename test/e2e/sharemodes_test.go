package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// besideEachOther runs tests in parallel that do not disturb each other, and mostly wait.
func (s *share) besideEachOther(_ context.Context, t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(ctx context.Context, t *testing.T)
	}{
		{"its node is evicted → the copy that came to it leaves under it", s.dataFollow},
		{"a Deployment with the same claim rolls → all its pods wrote", s.deploymentRolls},
		{"a volume of one pod becomes shared, then read-only → it keeps its data", s.changesModes},
		{"a node joins without addresses → no pod without rights reaches the share", s.noStranger},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			tc.run(ctx, t)
		})
	}
}

// waitLocal waits until a healthy replica is on the share's node, or until none is there.
func (s *share) waitLocal(ctx context.Context, t *testing.T, node string, isLocal bool) {
	t.Helper()
	cluster.Eventually(ctx, t, 2*time.Minute, fmt.Sprintf("a replica on %s: %t", node, isLocal), func(ctx context.Context) error {
		places := ""
		good := 0
		there := false
		for _, r := range replicasOf(ctx, t, s.c, s.volume) {
			isGood := r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" && r.DeletionTimestamp == nil
			there = there || r.Spec.NodeID == node && (isGood || !isLocal)
			if isGood {
				good++
			}
			places += " " + r.Spec.NodeID
		}
		if there != isLocal || good != 2 {
			return fmt.Errorf("%d healthy replicas; there are some on%s", good, places)
		}
		return nil
	})
	waitHealthy(ctx, t, s.c, s.volume, time.Minute)
}

// dataFollow: the volume is best-effort, and its consumer is the share. A replica is created on the share's node, and
// leaves the node when the node is evicted, while the pods write. Each move is a rebuild.
func (s *share) dataFollow(ctx context.Context, t *testing.T) {
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	node := s.status(ctx, t).CurrentNode
	t.Cleanup(func() { setEviction(context.WithoutCancel(ctx), t, s.c, node, false) })
	s.through(ctx, t, time.Minute, func() {
		began := time.Now()
		s.waitLocal(ctx, t, node, true)
		local := time.Since(began)
		setEviction(ctx, t, s.c, node, true)
		s.waitLocal(ctx, t, node, false)
		setEviction(ctx, t, s.c, node, false)
		t.Logf("a copy had come to its node after %v, and left it after %v", local.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond))
	})
	now, err := s.podUID(ctx)
	require.NoError(t, err)
	assert.Equal(t, uid, now, "its pod stays")
}

// deploymentRolls: three pods use the claim that others use, and are replaced one after the other.
func (s *share) deploymentRolls(ctx context.Context, t *testing.T) {
	require.NoError(t, s.c.Apply(ctx, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: rolling, namespace: %s}
spec:
  replicas: 3
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}
  selector: {matchLabels: {app: rolling}}
  template:
    metadata: {labels: {app: rolling}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {devcluster/kernel: uml}
      containers:
        - name: main
          image: localhost/workload:dev
          imagePullPolicy: IfNotPresent
          command: [bash, -ec, "mkdir -p /data/rolling; echo $HOSTNAME >/data/rolling/$HOSTNAME; sync /data/rolling/$HOSTNAME; touch /tmp/wrote; exec sleep infinity"]
          readinessProbe: {exec: {command: [test, -e, /tmp/wrote]}, periodSeconds: 1}
          volumeMounts: [{name: data, mountPath: /data}]
      volumes:
        - name: data
          persistentVolumeClaim: {claimName: shared}
`, s.namespace)))
	wait := func() {
		s.c.Must(ctx, t, "-n", s.namespace, "rollout", "status", "deployment/rolling", "--timeout=120s")
	}
	wait()
	s.c.Must(ctx, t, "-n", s.namespace, "rollout", "restart", "deployment/rolling")
	wait()
	wrote := strings.Fields(s.exec(ctx, t, "two", "cat /data/rolling/*"))
	slices.Sort(wrote)
	assert.Len(t, slices.Compact(wrote), 6, "three pods of each generation wrote")
	s.c.Must(ctx, t, "-n", s.namespace, "delete", "deployment", "rolling", "--timeout=60s")
}

// changesModes: a volume that one pod used is detached, becomes shared through the REST API, and is used by pods of two
// nodes at the same time. The first user's claim is ReadOnlyMany. The volume is served read-only for that user, until
// the second user requests write access.
func (s *share) changesModes(ctx context.Context, t *testing.T) {
	api := restOf(ctx, t, s.c)
	const volume = "e2e-share-modes"
	api.do(ctx, t, http.MethodPost, "/volumes", v1.VolumeCreate{Name: volume, Size: "64Mi", NumberOfReplicas: 2}, http.StatusCreated, nil)
	t.Cleanup(func() {
		s.c.Must(context.WithoutCancel(ctx), t, "-n", types.Namespace, "delete", "lhv", volume, "--ignore-not-found", "--timeout=120s")
	})
	waitVolume(ctx, t, s.c, volume, ".status.state", "detached")
	s.useAs(ctx, t, volume, []user{{"ReadWriteOnce", "node-1"}}, func() {
		s.exec(ctx, t, "readwriteonce", "echo of-one-pod >/data/file; sync /data/file")
	})
	api.do(ctx, t, http.MethodPost, "/volumes/"+volume+"?action=updateAccessMode", v1.UpdateAccessModeInput{AccessMode: "rwx"}, http.StatusOK, nil)
	s.useAs(ctx, t, volume, []user{{"ReadOnlyMany", "guest-1"}, {"ReadWriteMany", "guest-2"}}, func() {
		assert.Equal(t, "of-one-pod", s.exec(ctx, t, "readwritemany", "cat /data/file; echo of-many >>/data/file; sync /data/file"))
		assert.Equal(t, "of-one-pod\nof-many", s.exec(ctx, t, "readonlymany", "cat /data/file"))
		assert.Contains(t, s.exec(ctx, t, "readonlymany", "touch /data/other 2>&1 || true"), "Read-only file system")
	})
}

// user is a pod on a node, with a claim of an access mode.
type user struct{ mode, node string }

// useAs creates a PersistentVolume, a claim and a pod for each user, one after the other. It calls use, and then
// deletes them. The volume stays.
func (s *share) useAs(ctx context.Context, t *testing.T, volume string, users []user, use func()) {
	t.Helper()
	var pods, claims, volumes []string
	for _, u := range users {
		name := strings.ToLower(u.mode)
		require.NoError(t, s.c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-%[2]s}
spec:
  capacity: {storage: 64Mi}
  accessModes: [%[3]s]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: %[4]s, name: %[2]s}
  csi: {driver: %[5]s, volumeHandle: %[1]s, fsType: ext4, volumeAttributes: {shareManagerNodeSelector: "e2e/shares:yes"}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[2]s, namespace: %[4]s}
spec:
  storageClassName: ""
  volumeName: %[1]s-%[2]s
  accessModes: [%[3]s]
  resources: {requests: {storage: 64Mi}}
`, volume, name, u.mode, s.namespace, types.DriverName)))
		startPodOn(ctx, t, s.c, u.node, s.namespace, name, name, idle)
		s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "--timeout=240s", "pod/"+name)
		pods, claims, volumes = append(pods, "pod/"+name), append(claims, "pvc/"+name), append(volumes, volume+"-"+name)
	}
	use()
	s.c.Must(ctx, t, append([]string{"-n", s.namespace, "delete", "--timeout=120s"}, append(pods, claims...)...)...)
	waitVolume(ctx, t, s.c, volume, ".status.state", "detached")
	s.c.Must(ctx, t, append([]string{"delete", "pv", "--timeout=60s"}, volumes...)...)
	assert.Nil(t, theVolume(ctx, t, s.c, volume).DeletionTimestamp, "the volume went with a PersistentVolume whose reclaim policy is Retain")
}
