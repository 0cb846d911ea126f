package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// request is a request that the API server has answered, in the form of its audit log.
type request struct {
	Verb                     string
	User                     struct{ Username string }
	SourceIPs                []string
	ObjectRef                struct{ Resource, Subresource, Name string }
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
}

// accounts is the prefix of our ServiceAccounts' user names in the API server.
const accounts = "system:serviceaccount:" + types.Namespace + ":"

func (r request) ours() bool { return strings.HasPrefix(r.User.Username, accounts) }

func (r request) writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb)
}

// requestsSince reads the audit log of the cluster in a directory. The result is in the order in which the API server
// received the requests.
func requestsSince(t *testing.T, dir string, from time.Time) []request {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "audit.log"))
	require.NoError(t, err)
	defer f.Close()
	var all []request
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) == nil && !r.RequestReceivedTimestamp.Before(from) {
			all = append(all, r)
		}
	}
	require.NoError(t, lines.Err())
	slices.SortStableFunc(all, func(a, b request) int { return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp) })
	return all
}
