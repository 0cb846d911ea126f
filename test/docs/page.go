package docs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// The kinds of blocks.
const (
	Commands = "sh"
	Manifest = "yaml"
	Output   = "text"
)

// Page is a page for readers.
type Page struct {
	// Path is relative to the root of the repository.
	Path     string
	Blocks   []Block
	Headings []string // their anchors
	Links    []string
	Codes    []string // the text of `code spans`
}

// Block is a fenced block of a page, or an indented one, which has no Info.
type Block struct {
	Page    string
	Section string // the heading above it
	Line    int    // of the page
	Info    string
	Text    string
}

// String returns the place of the block.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// FirstLine returns the name of the block in lists.
func (b Block) FirstLine() string {
	first, _, _ := strings.Cut(b.Text, "\n")
	return first
}

var fileName = regexp.MustCompile(`^# ([a-z0-9-]+\.yaml)$`)

// File returns the name under which the reader saves a manifest, or an empty string if the page gives no name.
func (b Block) File() string {
	if m := fileName.FindStringSubmatch(b.FirstLine()); b.Info == Manifest && m != nil {
		return m[1]
	}
	return ""
}

// Pages reads all pages below the root of the repository, except the records of decisions.
func Pages(root string) ([]Page, error) {
	var pages []Page
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/dataplane/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read the pages: %w", err)
			}
			path, err := filepath.Rel(root, file)
			if err != nil {
				return nil, fmt.Errorf("read the pages: %w", err)
			}
			pages = append(pages, Parse(path, source))
		}
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("no pages below %s", root)
	}
	return pages, nil
}

// Parse reads one page.
func Parse(path string, source []byte) Page {
	p := Page{Path: path}
	section := ""
	tree := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	// The walker returns no error, so neither does the walk.
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			section = plain(n, source)
			p.Headings = append(p.Headings, p.anchor(section))
		case *ast.FencedCodeBlock:
			p.Blocks = append(p.Blocks, blockOf(path, section, string(n.Language(source)), n.Lines(), source))
		case *ast.CodeBlock:
			p.Blocks = append(p.Blocks, blockOf(path, section, "", n.Lines(), source))
		case *ast.Link:
			p.Links = append(p.Links, string(n.Destination))
		case *ast.CodeSpan:
			p.Codes = append(p.Codes, plain(n, source))
		}
		return ast.WalkContinue, nil
	})
	return p
}

func blockOf(page, section, info string, lines *text.Segments, source []byte) Block {
	b := Block{Page: page, Section: section, Info: info, Line: 1}
	if lines.Len() > 0 {
		b.Line += bytes.Count(source[:lines.At(0).Start], []byte("\n"))
		b.Text = string(lines.Value(source))
	}
	return b
}

// plain returns the text of a node without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		if t, ok := child.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
			continue
		}
		b.WriteString(plain(child, source))
	}
	return b.String()
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchor returns the end of links to a heading, in GitHub's form. A second heading with the same text gets a number.
func (p *Page) anchor(heading string) string {
	base := strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
	anchor := base
	for i := 1; slices.Contains(p.Headings, anchor); i++ {
		anchor = fmt.Sprintf("%s-%d", base, i)
	}
	return anchor
}
