package policy

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"
)

// defined is the API server's view of a CRD: how it processes objects before it stores them.
type defined struct {
	kind     schema.GroupVersionKind
	schema   *apiextensionsv1.JSONSchemaProps
	defaults *structuralschema.Structural
	strategy interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
	}
}

// definitions returns the definitions of deploy/longhorn.yaml's CRDs, by kind.
func definitions(t *testing.T) map[string]defined {
	t.Helper()
	all := map[string]defined{}
	for _, crd := range crds(t) {
		all[crd.Spec.Names.Kind] = define(t, crd)
	}
	return all
}

// crds returns the CRDs of the installation.
func crds(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../k8s/crds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict(text, crd), file)
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		all = append(all, crd)
	}
	return all
}

func define(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) defined {
	t.Helper()
	require.Len(t, crd.Spec.Versions, 1)
	version := crd.Spec.Versions[0]
	kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
	require.NotNil(t, version.Subresources.Status, "a status that an update of the object writes")
	internal := &apiextensions.CustomResourceValidation{}
	require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, internal, nil))
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	require.NoError(t, err)
	validator, _, err := apivalidation.NewSchemaValidator(internal.OpenAPIV3Schema)
	require.NoError(t, err)
	return defined{
		kind: kind, schema: version.Schema.OpenAPIV3Schema, defaults: structural,
		strategy: customresource.NewStrategy(nil, true, kind, validator, nil, structural, &apiextensions.CustomResourceSubresourceStatus{}, nil, nil),
	}
}

// stored returns an object as the API server stores it: pruned, and with its defaults.
func (d defined) stored(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := object(t, text)
	u.SetGroupVersionKind(d.kind)
	u.SetNamespace("storage")
	u.SetUID("uid")
	u.SetResourceVersion("1")
	pruning.Prune(u.Object, d.defaults, true)
	defaulting.Default(u.Object, d.defaults)
	return u
}

// refusals returns the errors that a request gets. The request updates old, or creates the object if old is empty.
func (d defined) refusals(t *testing.T, old, text string) field.ErrorList {
	t.Helper()
	u := d.stored(t, text)
	if old == "" {
		u.SetResourceVersion("")
		d.strategy.PrepareForCreate(context.Background(), u)
		return d.strategy.Validate(context.Background(), u)
	}
	before := d.stored(t, old)
	d.strategy.PrepareForUpdate(context.Background(), u, before)
	return d.strategy.ValidateUpdate(context.Background(), u, before)
}

// rulesOf lists the rules of a schema: "<kind> <path>: <message>". The path has * for every key and index.
func rulesOf(kind string, s *apiextensionsv1.JSONSchemaProps, path string) map[string]apiextensionsv1.ValidationRule {
	rules := map[string]apiextensionsv1.ValidationRule{}
	for _, r := range s.XValidations {
		rules[kind+" "+path+r.FieldPath+": "+r.Message] = r
	}
	below := func(s *apiextensionsv1.JSONSchemaProps, name string) {
		for what, r := range rulesOf(kind, s, strings.TrimPrefix(path+"."+name, ".")) {
			rules[what] = r
		}
	}
	for name, property := range s.Properties {
		below(&property, name)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		below(s.AdditionalProperties.Schema, "*")
	}
	if s.Items != nil && s.Items.Schema != nil {
		below(s.Items.Schema, "*")
	}
	return rules
}

// inBrackets is a key or an index in the path of an error.
var inBrackets = regexp.MustCompile(`\[[^]]*\]`)

// ruleOf names the rule of an error, as rulesOf does.
func ruleOf(kind string, e *field.Error) string {
	path := e.Field
	if path == "<nil>" {
		path = ""
	}
	return kind + " " + inBrackets.ReplaceAllString(path, ".*") + ": " + e.Detail
}

// TestTheAPIServerTakesEveryDefinition checks that the rules compile and are cheap enough, that the defaults are valid,
// and that messages tell users the reason.
func TestTheAPIServerTakesEveryDefinition(t *testing.T) {
	for _, crd := range crds(t) {
		internal := &apiextensions.CustomResourceDefinition{}
		require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil))
		internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
		assert.Empty(t, validation.ValidateCustomResourceDefinition(context.Background(), internal), crd.Name)
	}
	for kind, d := range definitions(t) {
		for what, rule := range rulesOf(kind, d.schema, "") {
			assert.NotEmpty(t, rule.Message, "%s %s", what, rule.Rule)
		}
	}
}

// TestTheManifestsHaveTheDefinitions checks that the manifests contain the definitions that the tests read.
func TestTheManifestsHaveTheDefinitions(t *testing.T) {
	text, err := os.ReadFile("../../deploy/longhorn.yaml")
	require.NoError(t, err)
	installed := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(doc), &kind))
		if kind.Kind != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), crd))
		installed[crd.Name] = crd
	}
	all := crds(t)
	assert.Len(t, installed, len(all))
	for _, crd := range all {
		require.Contains(t, installed, crd.Name)
		assert.Equal(t, crd.Spec.Versions[0].Schema, installed[crd.Name].Spec.Versions[0].Schema, crd.Name)
	}
}
