package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The tests of this file stand last: they look back at what the others left.

// TestNothingIsForbidden: the roles in deploy/longhorn.yaml are enough; no program asks
// for more.
func TestNothingIsForbidden(t *testing.T) {
	ctx, c := threeNodes.get(t)
	for _, app := range []string{"longhorn-manager", "longhorn-csi-controller", "longhorn-csi-plugin"} {
		log := c.Must(ctx, t, "-n", types.Namespace, "logs", "-l", "app="+app, "--tail=-1", "--prefix")
		for line := range strings.Lines(log) {
			assert.NotContains(t, line, "is forbidden", strings.TrimSpace(line))
		}
	}
}

// rest is how long the cluster is watched while nothing happens. Longer than the
// periods of all that runs by the clock: the disks are scanned every 30 s.
const rest = 60 * time.Second

// TestNothingIsWrittenAtRest: with a volume attached and idle, nothing of ours writes
// to the API server but the holders of leases, who must.
func TestNothingIsWrittenAtRest(t *testing.T) {
	ctx, c := threeNodes.get(t)
	ns := namespace(ctx, t, c, "e2e-rest")
	volume := claim(ctx, t, c, ns, "data", "64Mi")
	pod(ctx, t, c, ns, "idle", "data", idle)
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	var from time.Time
	cluster.Eventually(ctx, t, time.Minute, "what attaching set off has ended", func(context.Context) error {
		from = time.Now()
		if writes := writesSince(t, from.Add(-15*time.Second)); len(writes) > 0 {
			return errWritten(writes)
		}
		return nil
	})
	time.Sleep(rest) // what is waited for is that nothing happens
	writes := writesSince(t, from)
	assert.Empty(t, writes, errWritten(writes))
}

type errWritten []string

func (e errWritten) Error() string { return "written at rest: " + strings.Join(e, "; ") }

// writesSince reads the API server's audit log.
func writesSince(t *testing.T, from time.Time) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(threeNodes.options.Dir, "audit.log"))
	require.NoError(t, err)
	defer f.Close()
	var writes []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb                     string
			User                     struct{ Username string }
			ObjectRef                struct{ Resource, Subresource, Name string }
			RequestReceivedTimestamp time.Time
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.RequestReceivedTimestamp.Before(from) {
			continue
		}
		ours := strings.HasPrefix(e.User.Username, "system:serviceaccount:"+types.Namespace+":")
		if ours && slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb) && e.ObjectRef.Resource != "leases" && e.ObjectRef.Subresource != "token" {
			writes = append(writes, strings.Join([]string{e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, e.ObjectRef.Subresource}, " "))
		}
	}
	require.NoError(t, lines.Err())
	return writes
}
