// Package policy evaluates the admission policies of deploy/longhorn.yaml with the API server's own validator. It is a
// separate module, because the API server's packages need other versions of the main module's dependencies.
package policy

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// policies returns the policies of the manifests, by name.
func policies(t *testing.T) map[string]*admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	all, _ := manifests(t)
	return all
}

// manifests returns the policies by name, and the bindings by the name of their policy.
func manifests(t *testing.T) (
	all map[string]*admissionv1.ValidatingAdmissionPolicy, bindings map[string]admissionv1.ValidatingAdmissionPolicyBindingSpec,
) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/longhorn.yaml")
	require.NoError(t, err)
	all, bindings = map[string]*admissionv1.ValidatingAdmissionPolicy{}, map[string]admissionv1.ValidatingAdmissionPolicyBindingSpec{}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(doc), &kind))
		switch kind.Kind {
		case "ValidatingAdmissionPolicy":
			p := &admissionv1.ValidatingAdmissionPolicy{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), p), kind)
			all[p.Name] = p
		case "ValidatingAdmissionPolicyBinding":
			b := &admissionv1.ValidatingAdmissionPolicyBinding{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), b), kind)
			bindings[b.Spec.PolicyName] = b.Spec
		}
	}
	return all, bindings
}

// compile compiles a policy as the API server does.
func compile(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	o := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	messages := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}
	for _, v := range p.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, o, environment.StoredExpressions)
		require.Nil(t, result.Error, "variable %s of %s", v.Name, p.Name)
	}
	var conditions, validations, texts []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		require.NotEmpty(t, v.MessageExpression, "a validation of %s", p.Name)
		texts = append(texts, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	evaluator := func(expressions []cel.ExpressionAccessor, o cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		c := compiler.CompileCondition(expressions, o, environment.StoredExpressions)
		require.Empty(t, c.CompilationErrors(), p.Name)
		return c
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(evaluator(conditions, o), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	return validating.NewValidator(evaluator(validations, o), matcher, evaluator(nil, o), evaluator(texts, messages), p.Spec.FailurePolicy, nil)
}

// request is one request to the API server.
type request struct {
	operation   admission.Operation
	resource    schema.GroupVersionResource
	old, object string // YAML; empty: none
	params      []string
	user        string
	groups      []string
	extra       map[string][]string
	subresource string
	rights      rights // of the user
}

// rights are the rights of a user: verb and resource.
type rights []string

// Authorize implements authorizer.Authorizer.
func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if contains(r, a.GetVerb()+" "+a.GetResource()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	u := &unstructured.Unstructured{}
	require.NoError(t, k8syaml.Unmarshal([]byte(text), &u.Object)) // whole numbers are int64, as in the API server
	return u
}

// refusal returns the message with which a policy refuses a request, or "" if the policy accepts it. A policy that does
// not select the request is an error of the test: the API server would not evaluate that policy.
func refusal(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy, r request) string {
	t.Helper()
	named := object(t, r.old)
	if named == nil {
		named = object(t, r.object)
	}
	require.True(t, selects(t, p, r), "policy %s does not select %s of %s", p.Name, r.operation, r.resource)
	if s := p.Spec.MatchConstraints.ObjectSelector; s != nil {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		if !selector.Matches(labels.Set(named.GetLabels())) {
			return ""
		}
	}
	kind := named.GroupVersionKind()
	asObject := func(u *unstructured.Unstructured) runtime.Object {
		if u == nil {
			return nil
		}
		return u
	}
	attributes := admission.NewAttributesRecord(asObject(object(t, r.object)), asObject(object(t, r.old)), kind, named.GetNamespace(), named.GetName(), r.resource,
		r.subresource, r.operation, nil, false, &user.DefaultInfo{Name: r.user, Groups: r.groups, Extra: r.extra})
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind, VersionedObject: asObject(object(t, r.object)), VersionedOldObject: asObject(object(t, r.old)),
	}
	params := []runtime.Object{nil}
	if p.Spec.ParamKind != nil {
		params = nil // without parameters, the binding allows the request
		for _, text := range r.params {
			params = append(params, object(t, text))
		}
	}
	validator := compile(t, p)
	for _, param := range params {
		result := validator.Validate(context.Background(), r.resource, versioned, param, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget, r.rights)
		for _, d := range result.Decisions {
			if d.Evaluation == validating.EvalError {
				t.Fatalf("policy %s: %s", p.Name, d.Message)
			}
			if d.Action == validating.ActionDeny {
				return d.Message
			}
		}
	}
	return ""
}

// selects reports whether a policy has a rule for the operation and the resource.
func selects(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy, r request) bool {
	t.Helper()
	resource := r.resource.Resource
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	for _, rule := range p.Spec.MatchConstraints.ResourceRules {
		if contains(rule.APIGroups, r.resource.Group) && contains(rule.Resources, resource) && contains(rule.Operations, admissionv1.OperationType(r.operation)) {
			return true
		}
	}
	return false
}

func contains[T comparable](list []T, x T) bool {
	for _, y := range list {
		if y == x {
			return true
		}
	}
	return false
}

func TestEveryPolicyCompiles(t *testing.T) {
	all := policies(t)
	require.GreaterOrEqual(t, len(all), 8)
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) { compile(t, p) })
	}
}

// TestEveryPolicyIsInForce checks that every policy refuses a request that violates it, and also a request that it
// cannot evaluate. This is true in every namespace, and with any existing parameter.
func TestEveryPolicyIsInForce(t *testing.T) {
	all, bindings := manifests(t)
	for name, p := range all {
		want := admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}
		if p.Spec.ParamKind != nil {
			allow := admissionv1.AllowAction
			want.ParamRef = &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: &allow}
		}
		assert.Equal(t, want, bindings[name], "the binding of %s", name)
		fail := admissionv1.Fail
		assert.Equal(t, &fail, p.Spec.FailurePolicy, name)
		assert.Nil(t, p.Spec.MatchConstraints.NamespaceSelector, "%s is not in force where Helm made the namespace, which has no labels", name)
	}
}

// TestNoPolicyNamesANamespace makes sure that an installation in another namespace is protected as well.
func TestNoPolicyNamesANamespace(t *testing.T) {
	for _, p := range policies(t) {
		text, err := yaml.Marshal(p.Spec)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "longhorn-system", p.Name)
	}
}
