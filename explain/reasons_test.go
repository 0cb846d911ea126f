package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// constants reads the string constants of a file that have a prefix in their names.
func constants(t *testing.T, path, prefix string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, prefix) || i >= len(spec.Values) {
				continue
			}
			if value, ok := spec.Values[i].(*ast.BasicLit); ok {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[name.Name] = text
			}
		}
		return true
	})
	if len(found) == 0 {
		t.Fatalf("%s has no constant %s...: the test reads nothing", path, prefix)
	}
	return found
}

// well are the reasons that go with the good state of a condition, and why.
var well = map[string]string{
	types.ReasonPodRunning:       "the pod runs",
	types.ReasonShareNotUsed:     "a share that no client uses has no pod, and needs none",
	types.ReasonRecoveryDataKept: "a server found the records of the server before it",
	types.ReasonNoClientsBefore:  "no client had anything that could be lost",
	types.ReasonWaitsForPods:     "the value is valid; pods that serve get it when they are created again",
	types.ReasonNoEffectYet:      "the value is valid; docs/SETTINGS.md lists what this release does not act on",
}

func explained() map[string]bool {
	all := map[string]bool{}
	for _, table := range tables {
		for c := range table {
			all[c.reason] = true
		}
	}
	return all
}

func TestEveryReasonOfAConditionIsExplained(t *testing.T) {
	sources := []struct{ path, prefix string }{
		{"../types/conditions.go", "Reason"},
		{"../disk/match.go", "Reason"},
		{"../dataplane/engine/state.go", "Reason"},
		{"../scheduler/capacity.go", "ConditionReason"},
	}
	rows, seen := explained(), map[string]bool{}
	for _, source := range sources {
		for name, reason := range constants(t, source.path, source.prefix) {
			seen[reason] = true
			switch isWell := well[reason] != ""; {
			case rows[reason] && isWell:
				t.Errorf("%s (%s) has a row, and the test says that it is of a condition which is well", name, reason)
			case !rows[reason] && !isWell:
				t.Errorf("%s (%s) of %s is not explained: add a row to a table of advice*.go, or say in this test why it needs none", name, reason, source.path)
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(rows)) {
		if reason != "" && !seen[reason] {
			t.Errorf("a row is of the reason %q, which nothing gives", reason)
		}
	}
}

func TestEveryConditionIsExplained(t *testing.T) {
	rows := map[string]bool{}
	for _, table := range tables {
		for c := range table {
			rows[c.condition] = true
		}
	}
	for name, condition := range constants(t, "../types/conditions.go", "Condition") {
		if !rows[condition] {
			t.Errorf("%s (%s) is not explained: add rows to a table of advice*.go", name, condition)
		}
	}
	for _, condition := range troubles {
		if !rows[condition] {
			t.Errorf("condition %s counts as trouble while it is True, and no row has it", condition)
		}
	}
}

func TestEveryRowMakesAWholeFinding(t *testing.T) {
	for _, table := range tables {
		for c := range table {
			p := newWorld().place()
			for _, word := range []string{"node", "daemon", "im", "disk", "path", "uuid", "volume", "copynode", "places", "replica", "pod"} {
				p[word] = "x-" + word
			}
			status := longhorn.ConditionFalse
			if slices.Contains(troubles, c.condition) {
				status = longhorn.ConditionTrue
			}
			f, ok := ofCondition(Object{Kind: c.kind, Name: "x"}, p, longhorn.Condition{Type: c.condition, Status: status, Reason: c.reason, Message: "m"})
			if !ok || len(f.Why) != 1 || f.Why[0] != "m" {
				t.Errorf("%v gives %+v, %v", c, f, ok)
				continue
			}
			checkText(t, f)
		}
	}
}

func TestAReasonOfALaterReleaseIsToldByItsMessage(t *testing.T) {
	w := newWorld()
	w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, "OnTheMoon", "node n1 is on the moon")
	found := w.ask(t, "node n1")
	if len(found) != 1 || found[0].Reason != "OnTheMoon" || !slices.Contains(found[0].Why, "node n1 is on the moon") {
		t.Errorf("it is told as %+v", found)
	}
	checkText(t, found[0])
}
