package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// recordsAreLost: no client can reclaim its locks from a server that finds no records of the locks. Therefore the pods
// that have a controller are replaced, once. A later move, with records, restarts none of them.
func (s *share) recordsAreLost(ctx context.Context, t *testing.T) {
	require.NoError(t, s.c.Apply(ctx, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: holder, namespace: %s}
spec:
  replicas: 1
  selector: {matchLabels: {app: holder}}
  template:
    metadata: {labels: {app: holder}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: guest-2}
      containers:
        - name: main
          image: localhost/workload:dev
          imagePullPolicy: IfNotPresent
          command: [bash, -ec, "exec flock /data/held bash -c 'touch /tmp/holds; exec sleep infinity'"]
          readinessProbe: {exec: {command: [test, -e, /tmp/holds]}, periodSeconds: 1}
          volumeMounts: [{name: data, mountPath: /data}]
      volumes:
        - name: data
          persistentVolumeClaim: {claimName: shared}
`, s.namespace)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		_, err := s.c.Kubectl(ctx, "-n", s.namespace, "delete", "deployment", "holder", "--ignore-not-found")
		assert.NoError(t, err)
	})
	s.c.Must(ctx, t, "-n", s.namespace, "rollout", "status", "deployment/holder", "--timeout=240s")
	startPodOn(ctx, t, s.c, "guest-1", s.namespace, "bare", "shared", idle)
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/bare", "--timeout=240s")
	bare := s.c.Must(ctx, t, "-n", s.namespace, "get", "pod", "bare", "-o", "jsonpath={.metadata.uid}")
	first := s.holder(ctx, t)
	s.waitAsked(ctx, t)
	requested := s.status(ctx, t).RemountRequestedAt

	s.inServer(ctx, t, "rm -r /run/longhorn-share/recovery/v4recov")
	s.move(ctx, t)
	status := s.status(ctx, t)
	kept := types.FindCondition(status.Conditions, types.ConditionClientStateKept)
	assert.Equal(t, longhorn.ConditionFalse, kept.Status, kept.Message)
	assert.Equal(t, types.ReasonRecoveryDataMissing, kept.Reason)
	assert.Greater(t, status.RemountRequestedAt, requested)
	waitVolume(ctx, t, s.c, s.volume, ".status.remountRequestedAt", status.RemountRequestedAt)
	cluster.Eventually(ctx, t, 3*time.Minute, "the Deployment's pod is made anew", func(ctx context.Context) error {
		names, err := s.c.Kubectl(ctx, "-n", s.namespace, "get", "pod", "-l", "app=holder", "-o", "jsonpath={.items[*].metadata.name}")
		if err == nil && (names == "" || names == first) {
			err = errors.New("there is " + names)
		}
		return err
	})
	s.c.Must(ctx, t, "-n", s.namespace, "rollout", "status", "deployment/holder", "--timeout=240s")
	second := s.holder(ctx, t)
	assert.NotEqual(t, first, second)
	assert.Equal(t, bare, s.c.Must(ctx, t, "-n", s.namespace, "get", "pod", "bare", "-o", "jsonpath={.metadata.uid}"), "no controller would create this pod again")
	assert.Contains(t, s.c.Must(ctx, t, "get", "events", "-A", "--field-selector=reason=Remount", "-o", "jsonpath={.items[*].message}"), s.namespace+"/bare must be restarted")

	s.move(ctx, t)
	status = s.status(ctx, t)
	kept = types.FindCondition(status.Conditions, types.ConditionClientStateKept)
	assert.Equal(t, longhorn.ConditionTrue, kept.Status, kept.Message)
	assert.Len(t, status.RemountRequests, 1)
	got, err := s.c.Kubectl(ctx, "-n", s.namespace, "exec", "bare", "--", "bash", "-c", "flock -n /data/held true && echo got || echo held")
	require.NoError(t, err)
	assert.Equal(t, "held", got, "the pod that was made anew claimed its lock")
	assert.Equal(t, second, s.holder(ctx, t), "no pod is restarted that lost nothing")
	s.c.Must(ctx, t, "-n", s.namespace, "delete", "deployment", "holder")
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=delete", "pod/"+second, "--timeout=120s")
	deletePod(ctx, t, s.c, s.namespace, "bare")
}

// holder returns the Deployment's only pod that is not being deleted.
func (s *share) holder(ctx context.Context, t *testing.T) string {
	t.Helper()
	pods, err := s.c.Kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=holder"})
	require.NoError(t, err)
	there := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	require.Len(t, there, 1)
	return there[0].Name
}

// move deletes the server's pod. It waits until another pod serves and has reported which records it found.
func (s *share) move(ctx context.Context, t *testing.T) {
	t.Helper()
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	s.c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", types.ShareManagerPodName(s.volume), "--wait=false")
	s.waitRunning(ctx, t, uid, 3*time.Minute)
	s.waitAsked(ctx, t)
}

// waitAsked waits until the leader knows which of its predecessor's records the server's pod found.
func (s *share) waitAsked(ctx context.Context, t *testing.T) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "the server's pod was asked", func(ctx context.Context) error {
		uid, err := s.podUID(ctx)
		if err != nil {
			return err
		}
		if by := s.status(ctx, t).ServedBy; by != uid {
			return fmt.Errorf("the last one that was asked is %q", by)
		}
		return nil
	})
}
