package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/METRICS.md")

const document = "../docs/METRICS.md"

// TestMetricsDocument: the tables of the documentation are what is declared here. That all of them are registered, and nothing else, is
// tested in package app.
func TestMetricsDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	want := string(text)
	for part, families := range map[string][]Family{"every daemon": NodeFamilies(), "the leader": ClusterFamilies()} {
		begin := "<!-- Of " + part + ", made by: go test ./metrics -run TestMetricsDocument -update -->\n"
		const end = "<!-- End of what is made. -->\n"
		before, rest, found := strings.Cut(want, begin)
		require.True(t, found, "%s has no line %q", document, begin)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found, "%s has no line %q after %q", document, end, begin)
		want = before + begin + table(families) + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(text), "run: go test ./metrics -run TestMetricsDocument -update")
}

func table(families []Family) string {
	var b strings.Builder
	b.WriteString("\n| metric | labels | value |\n|---|---|---|\n")
	for _, f := range families {
		ours := ""
		if f.Ours {
			ours = " *"
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s |\n", f.Name, ours, strings.Join(f.Labels, ", "), f.Help)
	}
	b.WriteString("\n")
	return b.String()
}
