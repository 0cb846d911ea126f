package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestEnginesAreNotDeletedByHand checks what kubectl may do to the object that records which replicas hold a volume's
// data.
func TestEnginesAreNotDeletedByHand(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	engines := c.Longhorn.LonghornV1beta2().Engines(types.Namespace)
	makeEngine := func(name string, epoch *longhorn.Epoch) {
		t.Helper()
		e := &longhorn.Engine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: types.Namespace}}
		e.Spec.VolumeName, e.Spec.VolumeSize = "p", 2<<20
		e, err := engines.Create(ctx, e, metav1.CreateOptions{})
		require.NoError(t, err)
		e.Status.Epoch = epoch
		_, err = engines.UpdateStatus(ctx, e, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	makeEngine("p-e-0", &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"p-r-1"}})
	makeEngine("p-e-1", nil)

	cluster.Eventually(ctx, t, 20*time.Second, "the policy about engines is known to the API server", func(ctx context.Context) error {
		if err := engines.Delete(ctx, "p-e-0", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return errors.New("the deletion would have been allowed")
		}
		return nil
	})
	check(t, engines.Delete(ctx, "p-e-0", metav1.DeleteOptions{}),
		"engine p-e-0 records which replicas hold the data of its volume: it cannot be deleted; it is deleted automatically when its volume is deleted")
	_, err := engines.Get(ctx, "p-e-0", metav1.GetOptions{})
	assert.NoError(t, err, "after the refusal")
	check(t, engines.Delete(ctx, "p-e-1", metav1.DeleteOptions{}), "") // it was never started, so it records nothing
	c.Must(ctx, t, "-n", types.Namespace, "delete", "engines.longhorn.io", "p-e-0", "--as=system:serviceaccount:"+types.Namespace+":"+types.LeaderAccount)
}
