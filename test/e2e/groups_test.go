package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// group says with which other tests a test may run. scripts/test.sh runs each group in a separate process, with
// separate clusters.
type group string

const (
	// ordinary tests share a cluster. They break at most a process or a disk.
	ordinary group = "ordinary"
	// disruptive tests share a cluster. They change its release, or its nodes while a writer runs.
	disruptive group = "disruptive"
	// apart are tests with their own cluster: nine nodes, nodes with their own kernels, the uninstaller.
	apart group = "apart"
	// long tests take half an hour or longer, and have their own cluster. They are not part of make test.
	long group = "long"
)

var groups = []group{ordinary, disruptive, apart, long}

// wanted is the group that runs. If it is empty, all groups run.
var wanted = group(os.Getenv("LONGHORN_E2E_GROUP"))

// checkGroup refuses a group that does not exist: no test would run.
func checkGroup() error {
	if wanted != "" && !slices.Contains(groups, wanted) {
		return fmt.Errorf("LONGHORN_E2E_GROUP=%s: there are %v", wanted, groups)
	}
	return nil
}

// declare skips a test if it belongs to another group than the one that runs.
func (g group) declare(t *testing.T) {
	t.Helper()
	if wanted != "" && wanted != g {
		t.Skipf("LONGHORN_E2E_GROUP=%s: this test is %s", wanted, g)
	}
}
