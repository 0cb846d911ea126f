package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func pages(t *testing.T) []Page {
	t.Helper()
	all, err := Pages(root)
	require.NoError(t, err)
	require.Greater(t, len(all), 10, "the pages are not found")
	return all
}

func TestParse(t *testing.T) {
	page := strings.Join([]string{
		"# Title", "See [a](b.md#c) and `name`.", "", "## What *is* it, then?", "| x | y |", "|---|---|", "| `in a table` | [d](e/) |", "",
		"```sh", "one", "two", "```", "", "- a list", "", "  ```yaml", "  # file.yaml", "  kind: X", "  ```", "", "## What is it then", "", "text", "", "    indented",
	}, "\n")
	assert.Equal(t, Page{
		Path:     "p.md",
		Headings: []string{"title", "what-is-it-then", "what-is-it-then-1"},
		Links:    []string{"b.md#c", "e/"},
		Codes:    []string{"name", "in a table"},
		Blocks: []Block{
			{Page: "p.md", Section: "What is it, then?", Line: 10, Info: "sh", Text: "one\ntwo\n"},
			{Page: "p.md", Section: "What is it, then?", Line: 17, Info: "yaml", Text: "# file.yaml\nkind: X\n"},
			{Page: "p.md", Section: "What is it then", Line: 25, Text: "indented\n"},
		},
	}, Parse("p.md", []byte(page)))
	assert.Equal(t, "file.yaml", Block{Info: Manifest, Text: "# file.yaml\nkind: X\n"}.File())
	assert.Empty(t, Block{Info: Manifest, Text: "# a word to file.yaml\n"}.File())
}

// TestLinksLeadSomewhere: each link leads to a file of the repository, and to a heading that the page has.
func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	links := 0
	for _, p := range all {
		for _, link := range p.Links {
			to, err := url.Parse(link)
			require.NoError(t, err, "%s: link %s", p.Path, link)
			if to.Scheme != "" {
				continue // to another site: a test does not use the network
			}
			links++
			target := p.Path
			if to.Path != "" {
				target = filepath.Join(filepath.Dir(p.Path), to.Path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); !assert.NoError(t, err, "%s: link %s", p.Path, link) || to.Fragment == "" {
				continue
			}
			i := slices.IndexFunc(all, func(p Page) bool { return p.Path == target })
			require.GreaterOrEqual(t, i, 0, "%s: link %s leads to a heading of what is no page", p.Path, link)
			assert.Contains(t, all[i].Headings, to.Fragment, "%s: link %s", p.Path, link)
		}
	}
	assert.Greater(t, links, 30, "the links are not found")
}

// isForCode reports whether a page is for developers: its blocks are pictures and formats.
func isForCode(page string) bool {
	return filepath.Dir(page) == "docs/dataplane" || slices.Contains([]string{"docs/ARCHITECTURE.md", "docs/benchmarks.md"}, page)
}

// TestBlocksSayWhatTheyAre: no test would run or check a block without a kind.
func TestBlocksSayWhatTheyAre(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			if isForCode(p.Path) {
				continue
			}
			assert.Contains(t, []string{Commands, Manifest, Output}, b.Info, "%s: a block without one of these kinds: %.60s", b, b.Text)
			if b.Info == Output {
				assert.NotRegexp(t, `^(kubectl|helm|make|curl|sudo) `, b.Text, "%s: commands that are called output", b)
			}
		}
	}
}

// TestEveryCommandIsRun: a life runs the command on a cluster, or a list gives the reason why none does.
func TestEveryCommandIsRun(t *testing.T) {
	all := pages(t)
	run := map[string]bool{}
	var texts []string
	for _, life := range Lives {
		blocks, err := life.Blocks(all)
		require.NoError(t, err, life.Name)
		firsts := map[string]bool{}
		for _, b := range blocks {
			run[b.Text] = true
			firsts[b.FirstLine()] = true
			texts = append(texts, b.Text)
		}
		for first := range life.ByHand {
			assert.True(t, firsts[first], "no block begins with %q", first)
		}
	}
	ran := strings.Join(texts, "\n")
	excused, excusedInline := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		for _, b := range p.Blocks {
			reason, listed := notRun[b.FirstLine()]
			switch {
			case b.Info != Commands || run[b.Text]:
			case listed && reason != "":
				excused[b.FirstLine()] = true
			default:
				t.Errorf("%s: no life has this block, and notRun gives no reason: %s", b, b.FirstLine())
			}
		}
		for _, code := range p.Codes {
			program, rest, _ := strings.Cut(code, " ")
			if rest == "" || isForCode(p.Path) || !slices.Contains([]string{"kubectl", "helm", "curl"}, program) || strings.Contains(ran, code) {
				continue
			}
			if assert.NotEmpty(t, notRunInline[code], "%s: no block has this command, and notRunInline gives no reason: %s", p.Path, code) {
				excusedInline[code] = true
			}
		}
	}
	for first := range notRun {
		assert.True(t, excused[first], "notRun has a block that is not there, or is run: %s", first)
	}
	for code := range notRunInline {
		assert.True(t, excusedInline[code], "notRunInline has a command that is not there, or is run: %s", code)
	}
}

// TestNamesAreThoseOfTheCode: if a page has one of our names in `code`, the source contains this name.
func TestNamesAreThoseOfTheCode(t *testing.T) {
	known := words(t)
	count := 0
	for _, p := range pages(t) {
		for _, code := range p.Codes {
			if !name.MatchString(code) || slices.Contains(ofOthers, code) {
				continue
			}
			count++
			assert.True(t, known[code], "%s: %s is in no source file", p.Path, code)
		}
	}
	assert.Greater(t, count, 300, "the names are not found")
}

var (
	// name matches the name of a condition, reason, Event, field, setting, metric or test: several words in one.
	name = regexp.MustCompile(`^(?:[A-Za-z]*[a-z]+[A-Z][A-Za-z0-9]*|[A-Z][a-z]+|[a-z]+(?:-[a-z0-9]+)+|longhorn_[a-z_]+)$`)
	// word matches a word of a source file.
	word = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*`)
	// ofOthers are names of Kubernetes, Linux and distributions that none of our source files needs.
	ofOthers = []string{"FailedAttachVolume", "ModifyVolumeError", "NodeResizeError", "linux-modules-extra", "local-path", "maximumVolumeSize", "user-mode-linux"}
)

// words returns all words of the source: programs, manifests, scripts.
func words(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "docs", "vendor", "node_modules"}, d.Name()) {
			return filepath.SkipDir
		}
		base := filepath.Base(path)
		if !slices.Contains([]string{".go", ".yaml", ".sh", ".json", ".proto", ".c"}, filepath.Ext(path)) && base != "Makefile" && base != "Dockerfile" {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, w := range word.FindAllString(string(text), -1) {
			known[w] = true
		}
		return err
	})
	require.NoError(t, err)
	return known
}
