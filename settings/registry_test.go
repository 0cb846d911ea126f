package settings

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of docs/SETTINGS.md instead of comparing it")

func TestAReadOnlySettingKeepsItsDefault(t *testing.T) {
	d := Definition{Name: "told", Type: TypeString, Default: "a", ReadOnly: true}
	assert.NoError(t, d.check("a"))
	assert.NoError(t, d.check(""))
	assert.EqualError(t, d.check("b"), `setting told with invalid value "b": it cannot be set: the setting is read-only`)
}

// TestEffectsAreTrue checks that a setting has an effect if, and only if, code outside this package uses its constant.
// Tests do not count.
func TestEffectsAreTrue(t *testing.T) {
	used := usedConstants(t, "..")
	for identifier, name := range settingConstants(t) {
		d, ok := DefinitionOf(name)
		if !assert.True(t, ok, "%s is not defined", identifier) {
			continue
		}
		if used[identifier] {
			assert.NotEqual(t, EffectNone, d.Effect, "%s is used: say in the registry when it acts", identifier)
		} else {
			assert.Equal(t, EffectNone, d.Effect, "no code uses %s", identifier)
		}
	}
	assert.Len(t, settingConstants(t), len(settingDefinitions))
}

// settingConstants are the constants of type Name.
func settingConstants(t *testing.T) map[string]Name {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "registry.go", nil, 0)
	require.NoError(t, err)
	constants := map[string]Name{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typed, ok := spec.Type.(*ast.Ident); ok && typed.Name == "Name" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			constants[spec.Names[0].Name] = Name(text)
		}
		return true
	})
	return constants
}

// usedConstants returns the names from this package that the program uses, without its tests.
func usedConstants(t *testing.T, root string) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		relative := strings.TrimPrefix(path, root+string(filepath.Separator))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "settings", "test", "internal", "k8s", "devcluster", "vendor", "bin"}, relative):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := selector.X.(*ast.Ident); ok && from.Name == "settings" {
					used[selector.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	require.True(t, used["DefaultReplicaCount"], "the program was not found at %s", root)
	return used
}

const (
	settingsDocument = "../docs/SETTINGS.md"
	tableBegin       = "<!-- Generated from the registry by: go test ./settings -run TestSettingsDocument -update -->\n"
	tableEnd         = "<!-- End of the generated part. -->\n"
)

// TestSettingsDocument compares the table of the documentation with the registry.
func TestSettingsDocument(t *testing.T) {
	text, err := os.ReadFile(settingsDocument)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), tableBegin)
	require.True(t, found, "%s has no line %q", settingsDocument, tableBegin)
	_, after, found := strings.Cut(rest, tableEnd)
	require.True(t, found, "%s has no line %q", settingsDocument, tableEnd)
	want := before + tableBegin + settingsTable() + tableEnd + after
	if *update {
		require.NoError(t, os.WriteFile(settingsDocument, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(text), "run: go test ./settings -run TestSettingsDocument -update")
}

func settingsTable() string {
	var b strings.Builder
	category := ""
	for _, d := range settingDefinitions {
		if d.Category != category {
			category = d.Category
			fmt.Fprintf(&b, "\n## %s\n\n| setting | type | default | values | acts | what it does |\n|---|---|---|---|---|---|\n", category)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", d.Name, d.Type, code(d.Default), allowed(d), d.Effect, d.Description)
	}
	return b.String() + "\n"
}

// allowed describes the allowed values of a setting, beyond its type.
func allowed(d Definition) string {
	switch {
	case d.ReadOnly:
		return "read-only"
	case len(d.Options) > 0:
		options := make([]string, 0, len(d.Options))
		for _, o := range d.Options {
			options = append(options, code(o))
		}
		return strings.Join(options, ", ")
	case d.Minimum != nil && d.Maximum != nil:
		return fmt.Sprintf("%d–%d", *d.Minimum, *d.Maximum)
	case d.Minimum != nil:
		return fmt.Sprintf("at least %d", *d.Minimum)
	case d.Type == TypeBool:
		return "`true`, `false`"
	}
	return d.values
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
