package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The tests of this file are the last ones: they examine the state that the others left.

// TestNothingIsForbidden: the roles in deploy/longhorn.yaml are sufficient. No program requests more.
func TestNothingIsForbidden(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	for _, app := range []string{"longhorn-manager", "longhorn-csi-controller", "longhorn-csi-plugin"} {
		log := c.Must(ctx, t, "-n", types.Namespace, "logs", "-l", "app="+app, "--tail=-1", "--prefix")
		for line := range strings.Lines(log) {
			assert.NotContains(t, line, "is forbidden", strings.TrimSpace(line))
		}
	}
}

// rest is how long the cluster is watched while nothing happens. It is longer than the period of every periodic task:
// the disks are scanned every 30 s.
const rest = 60 * time.Second

// maxReviews is the number of reviews that may be requested while the cluster is idle. The CSI attacher compares its
// attachments with the REST API's volumes every minute. Each of its requests may cost a TokenReview and a
// SubjectAccessReview.
const maxReviews = 4

// TestNothingIsWrittenAtRest: with a volume attached and idle, none of our programs writes to the API server, except
// the holders of leases, which must renew them. The API server answers reviews and does not store them.
func TestNothingIsWrittenAtRest(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	var writes []string
	t.Cleanup(func() { // registered first, so its output comes last after a failure
		if t.Failed() {
			t.Log(errWritten(writes))
		}
	})
	ns := namespace(ctx, t, c, "e2e-rest")
	volume := claim(ctx, t, c, ns, "data", "64Mi")
	pod(ctx, t, c, ns, "idle", "data", idle)
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	var from time.Time
	cluster.Eventually(ctx, t, time.Minute, "what attaching set off has ended", func(context.Context) error {
		from = time.Now()
		if writes, _ = writesSince(t, from.Add(-15*time.Second)); len(writes) > 0 {
			return errWritten(writes)
		}
		return nil
	})
	time.Sleep(rest) // the test waits for nothing to happen
	var reviews int
	writes, reviews = writesSince(t, from)
	assert.Empty(t, writes, errWritten(writes))
	assert.LessOrEqual(t, reviews, maxReviews, "reviews of tokens and rights")
}

type errWritten []string

func (e errWritten) Error() string { return "written at rest: " + strings.Join(e, "; ") }

// writesSince reads the API server's audit log. It returns what we wrote, and how many reviews we requested.
func writesSince(t *testing.T, from time.Time) (writes []string, reviews int) {
	t.Helper()
	for _, r := range requestsSince(t, threeNodes.options.Dir, from) {
		if !r.ours() || !r.writes() {
			continue
		}
		switch o := r.ObjectRef; {
		case o.Resource == "leases", o.Subresource == "token":
		case o.Resource == "tokenreviews", o.Resource == "subjectaccessreviews":
			reviews++
		default:
			writes = append(writes, strings.Join([]string{r.Verb, o.Resource, o.Name, o.Subresource}, " "))
		}
	}
	return writes, reviews
}

// TestInstallationIsRemoved: the uninstaller refuses to delete a volume until a user confirms that, and then removes the
// whole installation. It is the last of the everyday tests.
func TestInstallationIsRemoved(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	if !mayRemoveInstallation(t) {
		t.Skip("tests of other groups use this installation; TestUninstall removes another one")
	}
	ns := namespace(ctx, t, c, "e2e-removed")
	volume := claim(ctx, t, c, ns, "data", "64Mi")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	assert.Contains(t, removeInstallation(ctx, t, c, threeNodes.options.Root, volume), "nothing is left of the installation")
}
