package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The walk from a claim to the bytes on a disk is a numbered list in this section.
const (
	walkPage    = "docs/ARCHITECTURE.md"
	walkSection = "## Follow one volume"
	// longestWalk is the largest number of files in it. An engineer must be able to read them in one sitting.
	longestWalk = 28
)

// stop is one entry of the list: a file, and the functions to read in it.
type stop struct {
	file      string
	functions []string
}

var (
	entry    = regexp.MustCompile(`^(\d+)\. ([^:]+): .`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
)

// stopsOf reads the numbered list of a section. The entries must have this form:
//
//  1. `package/file.go`, `function` and `function`: what happens there
func stopsOf(page, section string) ([]stop, error) {
	_, rest, found := strings.Cut(page, "\n"+section+"\n")
	if !found {
		return nil, fmt.Errorf("there is no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var stops []stop
	for line := range strings.Lines(rest) {
		if !regexp.MustCompile(`^\d+\.`).MatchString(line) {
			continue
		}
		m := entry.FindStringSubmatch(line)
		if m == nil || m[1] != strconv.Itoa(len(stops)+1) {
			return nil, fmt.Errorf("entry %d has another number or form: %s", len(stops)+1, line)
		}
		var s stop
		for i, code := range codeSpan.FindAllStringSubmatch(m[2], -1) {
			if i == 0 {
				s.file = code[1]
			} else {
				s.functions = append(s.functions, code[1])
			}
		}
		stops = append(stops, s)
	}
	return stops, nil
}

// functionsOf returns the names of the functions and methods of a Go file.
func functionsOf(path string) (map[string]bool, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names[f.Name.Name] = true
		}
	}
	return names, nil
}

// TestAVolumeCanBeFollowed: each file of the walk exists, and has the functions. No file is opened twice.
func TestAVolumeCanBeFollowed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, walkPage))
	require.NoError(t, err)
	stops, err := stopsOf(string(page), walkSection)
	require.NoError(t, err)
	assert.Greater(t, len(stops), 20, "the list is not found")
	assert.LessOrEqual(t, len(stops), longestWalk, "the walk is too long: join files, or say why it must be longer")
	seen := map[string]bool{}
	for i, s := range stops {
		assert.False(t, seen[s.file], "entry %d: %s is in the list twice", i+1, s.file)
		seen[s.file] = true
		assert.NotEmpty(t, s.functions, "entry %d: %s is named without a function", i+1, s.file)
		known, err := functionsOf(filepath.Join(root, s.file))
		if !assert.NoError(t, err, "entry %d", i+1) {
			continue
		}
		for _, f := range s.functions {
			assert.True(t, known[f], "entry %d: %s has no function %s", i+1, s.file, f)
		}
	}
}

func TestStopsOf(t *testing.T) {
	stops, err := stopsOf("# P\n\n## S\ntext\n\n1. `a/b.go`, `F` and `g`: does `h`.\n   More: `i`.\n\n2. `c.go`, `j`: ends.\n\n## T\n1. x\n", "## S")
	require.NoError(t, err)
	assert.Equal(t, []stop{{"a/b.go", []string{"F", "g"}}, {"c.go", []string{"j"}}}, stops)
	for name, page := range map[string]string{
		"no section":       "# P\n\n## T\n",
		"a number is left": "# P\n\n## S\n2. `a.go`, `F`: x\n",
		"another form":     "# P\n\n## S\n1. a.go does it\n",
	} {
		_, err := stopsOf(page, "## S")
		assert.Error(t, err, name)
	}
}
