package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	secretKey = "k3y-of-the-volume-0123456789abcdef"
	jwt       = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"
	password  = "correct-horse-battery"
)

var at = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

// secrets are objects with values that a bundle must not contain, at the places where they may occur.
func secrets() []runtime.Object {
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.VolumeSecretName("v")}, Data: map[string][]byte{types.VolumeSecretKey: []byte(secretKey)}}
	pod := build.Pod("longhorn-manager-x", "n1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"env":"` + password + `"}`}
		p.Spec.Containers = []corev1.Container{{Name: "longhorn-manager", Image: "i", Env: []corev1.EnvVar{{Name: "DB_DSN", Value: password}}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "longhorn-manager", RestartCount: 1}}
	})
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "e"}, Message: "Authorization: Bearer " + jwt + " was refused",
	}
	own := build.ConfigMap(types.DefaultSettingsConfigMap, types.DefaultSettingsKey, "log-level: debug")
	other := build.ConfigMap("somebody-elses", "text", password)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "longhorn"}, Provisioner: types.DriverName}
	foreign := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Provisioner: "other.example", Parameters: map[string]string{"password": password}}
	return []runtime.Object{key, pod, event, own, other, class, foreign, build.KubeNode("n1")}
}

// bundled writes a bundle from fake clients, and returns its files and the clients.
func bundled(t *testing.T, change func(kube *kubefake.Clientset, dynamic *dynamicfake.FakeDynamicClient)) (map[string]string, *kubefake.Clientset, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, longhorn.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	ours := []runtime.Object{build.Volume("v"), build.ReadyNode("n1", "uuid-n1")}
	kube := kubefake.NewClientset(secrets()...)
	client := dynamicfake.NewSimpleDynamicClient(scheme, append(secrets(), ours...)...)
	change(kube, client)
	var out bytes.Buffer
	missing, err := WriteBundle(t.Context(), &out, BundleOptions{
		Cluster: Cluster{Kube: kube, Longhorn: longhornfake.NewSimpleClientset(ours...), Namespace: types.Namespace, Clock: testclock.NewFakePassiveClock(at)},
		Dynamic: client, Version: "v1", LogBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &out)
	if files["errors.txt"] != strings.Join(missing, "\n") {
		t.Errorf("errors.txt says %q, and the caller is told %q", files["errors.txt"], missing)
	}
	return files, kube, client
}

func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "longhorn-support/")] = string(text)
	}
}

func nothing(*kubefake.Clientset, *dynamicfake.FakeDynamicClient) {}

func TestABundleHasWhatSupportNeeds(t *testing.T) {
	files, _, _ := bundled(t, nothing)
	for name, text := range map[string]string{
		"version.txt":                                           "longhorn-manager v1, 2026-01-02T10:00:00Z",
		"status.json":                                           `"name": "v"`,
		"findings.txt":                                          "node n1",
		"objects/volumes.longhorn.io.yaml":                      "name: v\n",
		"objects/nodes.longhorn.io.yaml":                        "uuid-n1",
		"objects/nodes.yaml":                                    "name: n1\n",
		"objects/pods.yaml":                                     "name: DB_DSN",
		"objects/events.yaml":                                   "was refused",
		"objects/configmaps.yaml":                               "log-level: debug",
		"objects/storageclasses.storage.k8s.io.yaml":            "name: longhorn\n",
		"logs/longhorn-manager-x/longhorn-manager.log":          "fake logs",
		"logs/longhorn-manager-x/longhorn-manager.previous.log": "fake logs",
	} {
		if !strings.Contains(files[name], text) {
			t.Errorf("%s is %q, which lacks %q", name, files[name], text)
		}
	}
	if files["errors.txt"] != "" {
		t.Errorf("errors.txt says %q", files["errors.txt"])
	}
}

func TestABundleHasNeitherSecretsNorTokens(t *testing.T) {
	files, kube, client := bundled(t, nothing)
	for name, text := range files {
		for _, secret := range []string{secretKey, base64.StdEncoding.EncodeToString([]byte(secretKey)), jwt, password, "somebody-elses", "other.example"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q in it", name, secret)
			}
		}
	}
	for _, actions := range [][]clienttesting.Action{kube.Actions(), client.Actions()} {
		if len(actions) == 0 {
			t.Fatal("nothing was asked of a client: the test sees nothing")
		}
		for _, a := range actions {
			if a.GetResource().Resource == "secrets" || !slices.Contains([]string{"get", "list"}, a.GetVerb()) {
				t.Errorf("the bundle asks to %s %s", a.GetVerb(), a.GetResource().Resource)
			}
		}
	}
	for _, kind := range packedKinds {
		if strings.HasPrefix(kind.resource, "secret") || strings.Contains(kind.resource, "token") {
			t.Errorf("%s is a kind of the bundle", kind.resource)
		}
	}
}

func TestWhatABundleLacksIsListed(t *testing.T) {
	files, _, _ := bundled(t, func(_ *kubefake.Clientset, client *dynamicfake.FakeDynamicClient) {
		client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("ask your administrator"))
		})
	})
	if !strings.Contains(files["errors.txt"], "leases.coordination.k8s.io: ") || !strings.Contains(files["errors.txt"], "ask your administrator") {
		t.Errorf("errors.txt says %q", files["errors.txt"])
	}
	if files["objects/volumes.longhorn.io.yaml"] == "" {
		t.Error("one kind that cannot be read takes others along")
	}
}

func TestCredentialsAreTakenOutOfTexts(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"a token by itself", "token " + jwt + " expired", "token [removed] expired"},
		{"a header", "Authorization: Bearer abcdefghijkl", "Authorization: Bearer [removed]"},
		{"basic authorization", "Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [removed]"},
		{"a password in a URL", "nfs mount of https://me:hunter2@example/x", "nfs mount of https://me:[removed]@example/x"},
		{"a key", "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx", "[removed]\nx"},
		{"a field of JSON", `{"apiKey":"0123456789abc","n":1}`, `{"apiKey":"[removed]","n":1}`},
		{"a field of a log", "password=0123456789abc user=me", "password=[removed] user=me"},
		{"the next line of YAML stays", "secret:\n  secretName: volume-key\n", "secret:\n  secretName: volume-key\n"},
		{"a basic thing stays", "basic functionality of the disk", "basic functionality of the disk"},
		{"an address of a share stays", "nfs://10.0.0.7/vol and nfs://[fd00::7]/vol", "nfs://10.0.0.7/vol and nfs://[fd00::7]/vol"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(scrubText([]byte(tc.text))); got != tc.want {
				t.Errorf("%q becomes %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}

func TestTheEndOfALogIsTaken(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 100_000)
	for _, tc := range []struct {
		name, text string
		most       int64
		want       string
	}{
		{"a short one → all", "a\nb\n", 100, "a\nb\n"},
		{"a longer one → whole lines from the end", "one\ntwo\nthree\n", 9, "three\n"},
		{"a much longer one → the same", long, 40, "0123456789abcde\n0123456789abcde\n"},
		{"an empty one → nothing", "", 10, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tail(iotest.HalfReader(strings.NewReader(tc.text)), tc.most)
			if err != nil || string(got) != tc.want {
				t.Errorf("it is %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	broken := io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(errors.New("cut off")))
	if got, err := tail(broken, 10); err == nil || string(got) != "a\n" {
		t.Errorf("of a log that is cut off there is %q, %v", got, err)
	}
}
