package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
)

// fioVerify writes at random, with checksums in every block, and reads everything back. It exits with an error at the
// first block that is wrong or fails.
const fioVerify = `fio --name=load --filename=/data/fio --rw=randwrite --bs=4k --ioengine=libaio --iodepth=8 --direct=1 ` +
	`--verify=crc32c --verify_fatal=1 --verify_backlog=4096 --do_verify=1 --time_based --fallocate=none --group_reporting`

// verifyingUntilStopped is the script of a pod "load" that writes and verifies, in short rounds, until /tmp/stop
// exists.
const verifyingUntilStopped = `
while [ ! -e /tmp/stop ]; do
  ` + fioVerify + ` --size=64M --runtime=8 --rate_iops=800
done
sync
echo verified
exec sleep infinity
`

// waitVerified waits until the pod "load" has written and verified everything, and fails if the pod has seen an error.
func waitVerified(ctx context.Context, t *testing.T, c *cluster.Cluster, ns string, timeout time.Duration) {
	t.Helper()
	var log string
	cluster.Eventually(ctx, t, timeout, "fio is done", func(context.Context) error {
		log = c.Must(ctx, t, "-n", ns, "logs", "load")
		if !strings.HasSuffix(log, "verified") && podPhase(ctx, t, c, ns, "load") == "Running" {
			return errors.New("it still runs")
		}
		return nil
	})
	assert.True(t, strings.HasSuffix(log, "verified"), "fio reports:\n%s", log)
	assert.NotContains(t, log, "verify:")
	assert.NotContains(t, log, "error=")
}
