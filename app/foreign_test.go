package app

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/types"
)

var (
	ours    = map[string]string{types.InstallationLabel: types.InstallationValue}
	foreign = map[string]string{"app.kubernetes.io/name": "longhorn", "app": "longhorn-manager"}
)

// marked returns an object as the check sees it.
func marked(apiVersion, kind, namespace, name string, labels map[string]string) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
	}
}

func crdObject(name string, labels map[string]string) runtime.Object {
	return marked("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name, labels)
}

func settingObject(name string, labels map[string]string) runtime.Object {
	return marked("longhorn.io/v1beta2", "Setting", "ns", name, labels)
}

func metadataClient(t *testing.T, objects ...runtime.Object) *fake.FakeMetadataClient {
	t.Helper()
	scheme := fake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	return fake.NewSimpleMetadataClient(scheme, objects...)
}

func TestCheckForeign(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []runtime.Object
		wants   string
	}{
		{name: "our own installation → fine", objects: []runtime.Object{
			crdObject("volumes.longhorn.io", ours), crdObject("certificates.cert-manager.io", nil), settingObject("default-replica-count", nil),
			marked("apps/v1", "DaemonSet", "ns", "longhorn-manager", ours), marked("apps/v1", "Deployment", "ns", "longhorn-csi-controller", ours),
			marked("storage.k8s.io/v1", "CSIDriver", "", "driver.longhorn.io", ours), marked("storage.k8s.io/v1", "CSIDriver", "", "nfs.csi.k8s.io", nil),
		}},
		{name: "settings that a later release of ours made → fine, so that it can be rolled back", objects: []runtime.Object{
			crdObject("settings.longhorn.io", ours), settingObject("default-data-locality", nil), settingObject("a-setting-of-next-year", nil),
		}},
		{name: "kinds and a record of the version that a later release of ours made → fine", objects: []runtime.Object{
			crdObject("sharemanagers.longhorn.io", ours), settingObject("current-longhorn-version", ours),
		}},
		{name: "a workload of somebody else in the namespace → fine", objects: []runtime.Object{
			marked("apps/v1", "Deployment", "ns", "oauth-proxy", map[string]string{"app.kubernetes.io/name": "oauth2-proxy"}),
		}},
		{name: "another Longhorn's workload in another namespace → none of ours to judge", objects: []runtime.Object{
			marked("apps/v1", "Deployment", "elsewhere", "longhorn-ui", foreign),
		}},
		{name: "a CRD of another Longhorn beside ours → refused", objects: []runtime.Object{crdObject("volumes.longhorn.io", ours), crdObject("engineimages.longhorn.io", nil)}, wants: "engineimages.longhorn.io"},
		{name: "CRDs taken over, its settings left → refused", objects: []runtime.Object{crdObject("settings.longhorn.io", ours), settingObject("current-longhorn-version", nil)}, wants: "current-longhorn-version"},
		{name: "CRDs taken over, its driver left → refused", objects: []runtime.Object{crdObject("settings.longhorn.io", ours), marked("storage.k8s.io/v1", "CSIDriver", "", "driver.longhorn.io", nil)}, wants: "its CSIDriver driver.longhorn.io"},
		{name: "CRDs taken over, its DaemonSet left → refused", objects: []runtime.Object{marked("apps/v1", "DaemonSet", "ns", "longhorn-csi-plugin", foreign)}, wants: "its DaemonSets longhorn-csi-plugin"},
		{name: "CRDs taken over, its Deployments left → refused", objects: []runtime.Object{
			marked("apps/v1", "Deployment", "ns", "longhorn-ui", foreign), marked("apps/v1", "Deployment", "ns", "longhorn-driver-deployer", foreign),
		}, wants: "its Deployments longhorn-driver-deployer, longhorn-ui"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := metadataClient(t, tc.objects...)
			err := checkForeign(context.Background(), client, "ns")
			assert.Equal(t, tc.wants == "", err == nil)
			if err != nil {
				assert.ErrorContains(t, err, tc.wants, "want it to name")
			}
			for _, a := range client.Actions() {
				assert.Equal(t, "list", a.GetVerb())
			}
		})
	}
}

// TestCheckForeignUnderAnotherRole: missing rights of the first release's role do not stop a daemon. Without the right
// to list the CRDs it does not start.
func TestCheckForeignUnderAnotherRole(t *testing.T) {
	for resource, wants := range map[string]string{
		"csidrivers": "", "daemonsets": "", "deployments": "",
		"customresourcedefinitions": "look for another Longhorn by its CRDs",
	} {
		t.Run(resource, func(t *testing.T) {
			client := metadataClient(t, crdObject("volumes.longhorn.io", ours))
			client.PrependReactor("list", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no rule"))
			})
			err := checkForeign(context.Background(), client, "ns")
			assert.Equal(t, wants == "", err == nil)
			if err != nil {
				assert.ErrorContains(t, err, wants)
			}
		})
	}
}

// TestADaemonWaitsForTheDefinitions: they are last in the manifest, and a daemon that exited would look broken.
func TestADaemonWaitsForTheDefinitions(t *testing.T) {
	missing := func(client *fake.FakeMetadataClient, looks *int, until int) {
		client.PrependReactor("list", "settings", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if *looks++; *looks < until {
				return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
			}
			return false, nil, nil
		})
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	for name, tc := range map[string]struct {
		objects []runtime.Object
		looks   int
		wants   string
	}{
		"they come → it goes on":                             {objects: []runtime.Object{crdObject("settings.longhorn.io", ours)}, looks: 3},
		"they are there → it goes on at once":                {objects: []runtime.Object{crdObject("settings.longhorn.io", ours)}, looks: 1},
		"they come with another Longhorn's record → refused": {objects: []runtime.Object{settingObject("current-longhorn-version", nil)}, looks: 3, wants: "current-longhorn-version"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, looks := metadataClient(t, tc.objects...), 0
				missing(client, &looks, tc.looks)
				err := newAdmission(clock.RealClock{}, logrus.NewEntry(quiet)).await(t.Context(), client, "ns")
				assert.Equal(t, tc.looks, looks)
				if tc.wants == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, tc.wants)
				}
			})
		})
	}
	t.Run("it is told to end → it ends", func(t *testing.T) {
		client, looks := metadataClient(t), 0
		missing(client, &looks, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, newAdmission(clock.RealClock{}, logrus.NewEntry(quiet)).await(ctx, client, "ns"), context.Canceled)
	})
}
