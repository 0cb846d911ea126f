package app

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/explain"
)

func TestAnotherLonghornIsFoundBeforeAnInstallation(t *testing.T) {
	for _, tc := range []struct {
		name     string
		objects  []runtime.Object
		resource string // whose lists are refused, with
		refusal  func(clienttesting.Action) error
		severity explain.Severity
		message  string
	}{
		{"nothing is installed → fine", nil, "", nil, "", "no other Longhorn is installed"},
		{"the kinds do not exist → fine", nil, "settings", func(a clienttesting.Action) error {
			return apierrors.NewNotFound(a.GetResource().GroupResource(), "")
		}, "", "no other Longhorn is installed"},
		{"this product is installed → fine", []runtime.Object{crdObject("volumes.longhorn.io", ours)}, "", nil, "", "no other Longhorn is installed"},
		{"another Longhorn → refused", []runtime.Object{crdObject("volumes.longhorn.io", nil)}, "", nil, explain.Broken, "another Longhorn is installed in this cluster"},
		{"no right → unknown", nil, "customresourcedefinitions", func(a clienttesting.Action) error {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no rule"))
		}, explain.Warning, "it is unknown whether another Longhorn is installed: "},
	} {
		client := metadataClient(t, tc.objects...)
		if tc.resource != "" {
			client.PrependReactor("list", tc.resource, func(a clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.refusal(a) })
		}
		check := examineForeign(t.Context(), client, "ns")
		assert.Equal(t, tc.severity, check.Severity, tc.name)
		assert.Contains(t, check.Message, tc.message, tc.name)
		assert.Equal(t, tc.severity != "", len(check.Next) > 0, tc.name)
	}
}
