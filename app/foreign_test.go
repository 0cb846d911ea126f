package app

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"

	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestCheckForeign(t *testing.T) {
	object := func(apiVersion, kind, namespace, name string, labels map[string]string) runtime.Object {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		}
	}
	crd := func(name string, labels map[string]string) runtime.Object {
		return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name, labels)
	}
	setting := func(name string) runtime.Object { return object("longhorn.io/v1beta2", "Setting", "ns", name, nil) }
	ours := map[string]string{types.InstallationLabel: types.InstallationValue}

	for _, tc := range []struct {
		name    string
		objects []runtime.Object
		wants   string
	}{
		{name: "our own installation → fine", objects: []runtime.Object{crd("volumes.longhorn.io", ours), crd("certificates.cert-manager.io", nil), setting("default-replica-count")}},
		{name: "a CRD of another Longhorn beside ours → refused", objects: []runtime.Object{crd("volumes.longhorn.io", ours), crd("engineimages.longhorn.io", nil)}, wants: "engineimages.longhorn.io"},
		{name: "CRDs taken over, its settings left → refused", objects: []runtime.Object{crd("settings.longhorn.io", ours), setting("current-longhorn-version")}, wants: "current-longhorn-version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := fake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			client := fake.NewSimpleMetadataClient(scheme, tc.objects...)
			err := checkForeign(context.Background(), client, "ns")
			if (err == nil) != (tc.wants == "") || err != nil && !strings.Contains(err.Error(), tc.wants) {
				t.Errorf("got %v, want it to name %q", err, tc.wants)
			}
			for _, a := range client.Actions() {
				if a.GetVerb() != "list" {
					t.Errorf("did %s", a.GetVerb())
				}
			}
		})
	}
}
