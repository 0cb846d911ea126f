package archtest

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// matches reports whether a package path matches a pattern (see rule).
func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if above, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == above || strings.HasPrefix(pkg, above+"/")
	}
	return pkg == pattern
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// own returns the path of an import within the module, and whether the import belongs to the module.
func own(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func ruleOf(pkg string) (rule, bool) {
	for _, r := range rules {
		if matches(r.pattern, pkg) {
			return r, true
		}
	}
	return rule{}, false
}

// checkDirections compares the files with the table of rules. Tests may also import the test helpers. To run a larger
// part of the program, they may also import the packages that the imported packages may import.
func checkDirections(files []sourceFile) []string {
	var broken []string
	for _, f := range files {
		r, ok := ruleOf(f.pkg)
		if !ok {
			broken = append(broken, fmt.Sprintf("%s: package %s has no rule; add it to test/archtest/rules.go with what it may import and why", f.path, f.pkg))
			continue
		}
		for _, imported := range f.imports {
			pkg, ok := own(imported)
			if !ok || pkg == f.pkg || strings.HasPrefix(pkg, f.pkg+"/") || matchesAny(r.may, pkg) {
				continue
			}
			if f.test && (matches("internal/testutil/...", pkg) || mayBelow(r, pkg)) {
				continue
			}
			broken = append(broken, fmt.Sprintf("%s imports %s: %s", f.path, pkg, r.because))
		}
	}
	return broken
}

// mayBelow reports whether a package that the rule allows may itself import pkg.
func mayBelow(r rule, pkg string) bool {
	return slices.ContainsFunc(r.may, func(pattern string) bool {
		below, ok := ruleOf(strings.TrimSuffix(pattern, "/..."))
		return ok && matchesAny(below.may, pkg)
	})
}

// checkForeign compares the files with the list of packages that only some may import.
func checkForeign(files []sourceFile) []string {
	var broken []string
	for _, f := range files {
		if f.test {
			continue
		}
		for _, imported := range f.imports {
			if slices.Contains(foreignExceptions, imported) {
				continue
			}
			for _, x := range foreign {
				if matches(x.imports, imported) && !matchesAny(x.only, f.pkg) {
					broken = append(broken, fmt.Sprintf("%s imports %s: %s", f.path, imported, x.because))
					break
				}
			}
		}
	}
	return broken
}

// checkPlanes finds a path of imports from one half to the other, except in tests.
func checkPlanes(files []sourceFile) []string {
	edges := map[string]map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		if edges[f.pkg] == nil {
			edges[f.pkg] = map[string]bool{}
		}
		for _, imported := range f.imports {
			if pkg, ok := own(imported); ok {
				edges[f.pkg][pkg] = true
			}
		}
	}
	var broken []string
	for pkg := range edges {
		for side, plane := range planes {
			if !matchesAny(plane, pkg) {
				continue
			}
			if way := wayTo(edges, pkg, planes[1-side]); way != nil {
				broken = append(broken, strings.Join(way, " → ")+": control plane and data plane meet in app only, so that each can be built, tested and read alone")
			}
		}
	}
	sort.Strings(broken)
	return broken
}

// wayTo returns the shortest chain of imports from a package to one of the patterns, or nil.
func wayTo(edges map[string]map[string]bool, from string, to []string) []string {
	seen := map[string]bool{from: true}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		way := queue[0]
		last := way[len(way)-1]
		if matchesAny(to, last) {
			return way
		}
		next := make([]string, 0, len(edges[last]))
		for pkg := range edges[last] {
			next = append(next, pkg)
		}
		sort.Strings(next)
		for _, pkg := range next {
			if !seen[pkg] {
				seen[pkg] = true
				queue = append(queue, append(slices.Clone(way), pkg))
			}
		}
	}
	return nil
}

// checkPurity finds imports and calls in pure code that can give different answers for the same values.
func checkPurity(files []sourceFile) []string {
	var broken []string
	for _, f := range files {
		name := f.path[strings.LastIndex(f.path, "/")+1:]
		if f.test {
			continue
		}
		if slices.Contains(purePackages, f.pkg) || slices.Contains(pureFiles, name) {
			for _, imported := range f.imports {
				if matchesAny(impureImports, imported) {
					broken = append(broken, fmt.Sprintf("%s imports %s: decisions take values and return values, so that tables can test them", f.path, imported))
				}
			}
			broken = append(broken, impure(f, "decisions take the time as a value")...)
			continue
		}
		if matchesAny(clockless, f.pkg) {
			broken = append(broken, impure(f, "a clock is injected (k8s.io/utils/clock), so that tests need not wait")...)
		}
	}
	return broken
}

func impure(f sourceFile, because string) []string {
	var broken []string
	for pkg, names := range impureCalls {
		for _, name := range names {
			if slices.Contains(f.calls, pkg+"."+name) {
				broken = append(broken, fmt.Sprintf("%s uses %s.%s: %s", f.path, pkg, name, because))
			}
		}
	}
	sort.Strings(broken)
	return broken
}
