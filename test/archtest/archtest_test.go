package archtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestModule checks the module that this package is in.
func TestModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	files, err := readModule(root)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 50, "found %d Go files below %s: the walk is broken", len(files), root)
	for name, check := range map[string]func([]sourceFile) []string{
		"import directions":              checkDirections,
		"packages that only some import": checkForeign,
		"control plane and data plane":   checkPlanes,
		"purity":                         checkPurity,
	} {
		t.Run(name, func(t *testing.T) {
			for _, line := range check(files) {
				t.Error(line)
			}
		})
	}
}

// TestChecks shows that each check can fail, and on what.
func TestChecks(t *testing.T) {
	const ours = module + "/"
	cases := []struct {
		name  string
		check func([]sourceFile) []string
		files []sourceFile
		want  []string
	}{
		{
			name: "a controller imports another → refused with the reason", check: checkDirections,
			files: []sourceFile{{path: "controller/volume/a.go", pkg: "controller/volume", imports: []string{ours + "controller/engine"}}},
			want: []string{"controller/volume/a.go imports controller/engine: controllers meet in the API, not in each other's code; " +
				"the data plane is reached through interfaces they declare"},
		},
		{
			name: "a controller imports what it may, and what is below it → fine", check: checkDirections,
			files: []sourceFile{{path: "controller/volume/a.go", pkg: "controller/volume", imports: []string{
				"fmt", ours + "datastore", ours + "scheduler", ours + "k8s/apis/longhorn/v1beta2", ours + "controller/volume/part",
			}}},
		},
		{
			name: "only the node controller imports disk", check: checkDirections,
			files: []sourceFile{
				{path: "controller/node/a.go", pkg: "controller/node", imports: []string{ours + "disk"}},
				{path: "controller/volume/a.go", pkg: "controller/volume", imports: []string{ours + "disk"}},
			},
			want: []string{"controller/volume/a.go imports disk: controllers meet in the API, not in each other's code; " +
				"the data plane is reached through interfaces they declare"},
		},
		{
			name: "test helpers in a test → fine; in production → refused", check: checkDirections,
			files: []sourceFile{
				{path: "manager/a_test.go", pkg: "manager", test: true, imports: []string{ours + "internal/testutil/build"}},
				{path: "dataplane/membership/a.go", pkg: "dataplane/membership", imports: []string{ours + "internal/testutil/build"}},
			},
			want: []string{"dataplane/membership/a.go imports internal/testutil/build: the rules of who holds the data are explored alone, so they stand alone"},
		},
		{
			name: "a test of handlers uses the store behind manager → fine; the handlers themselves → refused", check: checkDirections,
			files: []sourceFile{
				{path: "api/a_test.go", pkg: "api", test: true, imports: []string{ours + "datastore"}},
				{path: "api/a.go", pkg: "api", imports: []string{ours + "datastore"}},
				{path: "api/b_test.go", pkg: "api", test: true, imports: []string{ours + "dataplane/nbd"}},
			},
			want: []string{
				"api/a.go imports datastore: handlers translate; objects and stores are behind manager",
				"api/b_test.go imports dataplane/nbd: handlers translate; objects and stores are behind manager",
			},
		},
		{
			name: "a package without a rule → refused", check: checkDirections,
			files: []sourceFile{{path: "novel/a.go", pkg: "novel"}},
			want:  []string{"novel/a.go: package novel has no rule; add it to test/archtest/rules.go with what it may import and why"},
		},
		{
			name: "a replica imports client-go → refused; its clock → fine", check: checkForeign,
			files: []sourceFile{{path: "dataplane/replica/a.go", pkg: "dataplane/replica", imports: []string{"k8s.io/client-go/kubernetes", "k8s.io/utils/clock"}}},
			want:  []string{"dataplane/replica/a.go imports k8s.io/client-go/kubernetes: the API server is reached through datastore, or not at all"},
		},
		{
			name: "a controller imports the clientset → refused", check: checkForeign,
			files: []sourceFile{{path: "controller/node/a.go", pkg: "controller/node", imports: []string{ours + "k8s/client/clientset/versioned"}}},
			want: []string{"controller/node/a.go imports " + ours + "k8s/client/clientset/versioned: " +
				"the datastore is the only user of clientset and informers"},
		},
		{
			name: "the halves meet below a common package → the way is shown", check: checkPlanes,
			files: []sourceFile{
				{path: "manager/a.go", pkg: "manager", imports: []string{ours + "util/x"}},
				{path: "util/x/a.go", pkg: "util/x", imports: []string{ours + "dataplane/nbd"}},
				{path: "app/a.go", pkg: "app", imports: []string{ours + "manager", ours + "dataplane/nbd"}},
			},
			want: []string{"manager → util/x → dataplane/nbd: control plane and data plane meet in app only, so that each can be built, tested and read alone"},
		},
		{
			name: "a plan with a context and the wall clock → refused; apply beside it → only the clock", check: checkPurity,
			files: []sourceFile{
				{path: "controller/volume/plan.go", pkg: "controller/volume", imports: []string{"context", "time"}, calls: []string{"time.Now"}},
				{path: "controller/volume/apply.go", pkg: "controller/volume", imports: []string{"context", "time"}, calls: []string{"time.Since", "time.Duration"}},
			},
			want: []string{
				"controller/volume/plan.go imports context: decisions take values and return values, so that tables can test them",
				"controller/volume/plan.go uses time.Now: decisions take the time as a value",
				"controller/volume/apply.go uses time.Since: a clock is injected (k8s.io/utils/clock), so that tests need not wait",
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { same(t, c.check(c.files), c.want) })
	}
}

// TestParse: the parser resolves a renamed import, and does not mistake a local name for a package.
func TestParse(t *testing.T) {
	f, err := parseSource("controller/x/plan.go", []byte(`package x

import (
	clock "time"

	. "strings"
)

var a = clock.Now()

func b(time struct{ Now func() }) { time.Now(); ToUpper("") }
`))
	require.NoError(t, err)
	same(t, f.imports, []string{"time", "strings"})
	same(t, f.calls, []string{"time.Now"})
	assert.Equal(t, "controller/x", f.pkg)
	assert.False(t, f.test)
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		assert.Equal(t, w, g, "line %d", i)
	}
}
