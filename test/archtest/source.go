package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// sourceFile contains the facts about one Go file that the checks need.
type sourceFile struct {
	path    string   // relative to the module's root, with slashes
	pkg     string   // the directory, "." for the root
	test    bool     // a _test.go file
	imports []string // as written
	calls   []string // "time.Now": selectors on imported packages, by the package's path
}

// readModule parses every Go file of the module at root. It skips nested modules, hidden directories, vendor,
// node_modules and testdata.
func readModule(root string) ([]sourceFile, error) {
	var files []sourceFile
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != root && skipped(p, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parseSource(filepath.ToSlash(rel), text)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the module at %s: %w", root, err)
	}
	return files, nil
}

func skipped(dir, name string) bool {
	if strings.HasPrefix(name, ".") || name == "vendor" || name == "node_modules" || name == "testdata" || name == "bin" || name == "dist" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// parseSource reads one file; rel is its path in the module.
func parseSource(rel string, text []byte) (sourceFile, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), rel, text, parser.SkipObjectResolution)
	if err != nil {
		return sourceFile{}, fmt.Errorf("parse %s: %w", rel, err)
	}
	f := sourceFile{path: rel, pkg: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go")}
	byName := map[string]string{}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return sourceFile{}, fmt.Errorf("parse %s: import %s: %w", rel, spec.Path.Value, err)
		}
		f.imports = append(f.imports, imported)
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		byName[name] = imported
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && byName[x.Name] != "" {
				f.calls = append(f.calls, byName[x.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return f, nil
}
