package api

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

var update = flag.Bool("update", false, "write the golden file anew")

const golden = "testdata/schemas.golden"

// TestSchemasAreAsRecorded compares the schemas with a file, which has one line for each thing that a client can see.
func TestSchemasAreAsRecorded(t *testing.T) {
	b := newBench(t)
	c := decoded[v1.Collection[v1.Schema]](t, do(t, b.server, "GET", "/v1/schemas", ""))
	var text strings.Builder
	for _, s := range c.Data {
		describeSchema(&text, s)
	}
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), text.String(), "schemas differ from %s; if that is meant, run this test with -update and look at the difference.", golden)
}

func describeSchema(text *strings.Builder, s v1.Schema) {
	fmt.Fprintf(text, "%s (%s) collection %v resource %v links", s.ID, s.PluralName, s.CollectionMethods, s.ResourceMethods)
	for _, name := range sortedKeys(s.Links) {
		fmt.Fprintf(text, " %s=%s", name, s.Links[name])
	}
	text.WriteString("\n")
	for _, name := range sortedKeys(s.ResourceActions) {
		fmt.Fprintf(text, "  action %s(%s) %s\n", name, s.ResourceActions[name].Input, s.ResourceActions[name].Output)
	}
	for _, name := range sortedKeys(s.ResourceFields) {
		f := s.ResourceFields[name]
		fmt.Fprintf(text, "  %s %s", name, f.Type)
		for _, flag := range []struct {
			name string
			set  bool
		}{{"create", f.Create}, {"update", f.Update}, {"required", f.Required}, {"unique", f.Unique}} {
			if flag.set {
				text.WriteString(" " + flag.name)
			}
		}
		if f.Default != nil {
			fmt.Fprintf(text, " default=%v", f.Default)
		}
		if f.Options != nil {
			fmt.Fprintf(text, " options=%v", f.Options)
		}
		text.WriteString("\n")
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// TestSchemasAreConsistent: a client that reads nothing else can rely on the schemas.
func TestSchemasAreConsistent(t *testing.T) {
	b := newBench(t, threeNodes()...)
	c := decoded[v1.Collection[v1.Schema]](t, do(t, b.server, "GET", "/v1/schemas", ""))
	known := map[string]v1.Schema{}
	for _, s := range c.Data {
		known[s.ID] = s
	}
	for _, s := range c.Data {
		_, listed := s.Links["collection"]
		assert.Equal(t, slices.Contains(s.CollectionMethods, http.MethodGet), listed, "%s: link to its collection, methods %v", s.ID, s.CollectionMethods)
		if listed {
			path := strings.TrimPrefix(s.Links["collection"], "http://example.com")
			w := do(t, b.server, "GET", path, "")
			assert.Equal(t, 200, w.Code, "%s: GET %s", s.ID, path)
		}
		path := strings.TrimPrefix(s.Links["self"], "http://example.com")
		got := decoded[v1.Schema](t, do(t, b.server, "GET", path, ""))
		assert.Equal(t, s.ID, got.ID)
		for name, f := range s.ResourceFields {
			inner := f.Type
			for _, prefix := range []string{"array[", "map["} {
				inner = strings.TrimSuffix(strings.TrimPrefix(inner, prefix), "]")
			}
			if _, ok := known[inner]; !ok {
				assert.Contains(t, []string{"string", "int", "bool"}, inner, "%s.%s is of type %s, which no schema describes", s.ID, name, f.Type)
			}
		}
		for name, a := range s.ResourceActions {
			for _, id := range []string{a.Input, a.Output} {
				assert.Contains(t, known, id, "%s: action %s, which no schema describes", s.ID, name)
			}
		}
	}
}

// TestAdvertisedMethodsAreAnswered: no method that a schema lists is refused as unknown.
func TestAdvertisedMethodsAreAnswered(t *testing.T) {
	b := newBench(t)
	for _, k := range b.server.kinds {
		for _, method := range k.collectionMethods() {
			w := do(t, b.server, method, "/v1/"+k.path(), "{}")
			assert.NotEqual(t, 405, w.Code, "%s %s", method, k.path())
		}
		for _, method := range k.resourceMethods() {
			body := "{}"
			if k.id == v1.TypeSetting {
				body = `{"value":"1"}`
			}
			w := do(t, b.server, method, "/v1/"+k.path()+"/nix", body)
			assert.Equal(t, 404, w.Code, "%s of a %s that is not there: %s", method, k.id, w.Body)
		}
	}
}

func TestPlural(t *testing.T) {
	for name, want := range map[string]string{"volume": "volumes", "alias": "aliases", "branch": "branches", "box": "boxes"} {
		assert.Equal(t, want, plural(name), name)
	}
}
