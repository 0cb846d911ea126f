package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// group says with which other tests a test may run. scripts/test.sh runs each group in a separate process, with
// separate clusters.
type group string

const (
	// everyday tests share a cluster, one after the other, and show what users do every day. "make test" runs no others.
	everyday group = "everyday"
	// ordinary tests share a cluster. They break at most a process or a disk.
	ordinary group = "ordinary"
	// schema tests need only an API server. They check what the definitions accept and refuse, and their defaults.
	schema group = "schema"
	// disruptive tests share a cluster. They change its release, or its nodes while a writer runs.
	disruptive group = "disruptive"
	// apart are tests with their own cluster: nine nodes, nodes with their own kernels, the uninstaller.
	apart group = "apart"
	// long tests take half an hour or longer, and have their own cluster. They are not part of make test-all.
	long group = "long"
)

var groups = []group{everyday, ordinary, schema, disruptive, apart, long}

// wanted are the groups that run, separated by commas in the environment. If it is empty, all groups run.
var wanted = groupsIn(os.Getenv("LONGHORN_E2E_GROUP"))

func groupsIn(text string) (all []group) {
	for name := range strings.SplitSeq(text, ",") {
		if name != "" {
			all = append(all, group(name))
		}
	}
	return all
}

// checkGroups refuses a group that does not exist: no test would run.
func checkGroups() error {
	for _, g := range wanted {
		if !slices.Contains(groups, g) {
			return fmt.Errorf("LONGHORN_E2E_GROUP=%s: there are %v", g, groups)
		}
	}
	return nil
}

// declare skips a test if its group does not run.
func (g group) declare(t *testing.T) {
	t.Helper()
	if len(wanted) > 0 && !slices.Contains(wanted, g) {
		t.Skipf("LONGHORN_E2E_GROUP=%v: this test is %s", wanted, g)
	}
}
