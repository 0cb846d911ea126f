package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// group says beside which tests a test may run. scripts/test.sh runs each group in a process of its own, with clusters of its own.
type group string

const (
	// ordinary tests share a cluster, and break no more of it than a process or a disk.
	ordinary group = "ordinary"
	// disruptive tests share a cluster, and change its release or its nodes under a writer.
	disruptive group = "disruptive"
	// apart are tests with a cluster of their own: nine nodes, nodes with kernels of their own, the uninstaller.
	apart group = "apart"
	// long tests take half an hour and more, and a cluster of their own. They are not part of make test.
	long group = "long"
)

var groups = []group{ordinary, disruptive, apart, long}

// wanted is the group that runs; empty: all.
var wanted = group(os.Getenv("LONGHORN_E2E_GROUP"))

// checkGroup refuses a group that does not exist: no test would run.
func checkGroup() error {
	if wanted != "" && !slices.Contains(groups, wanted) {
		return fmt.Errorf("LONGHORN_E2E_GROUP=%s: there are %v", wanted, groups)
	}
	return nil
}

// declare skips a test of another group than the one that runs.
func (g group) declare(t *testing.T) {
	t.Helper()
	if wanted != "" && wanted != g {
		t.Skipf("LONGHORN_E2E_GROUP=%s: this test is %s", wanted, g)
	}
}
