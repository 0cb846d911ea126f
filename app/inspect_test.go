package app

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// emptyCluster returns a kubeconfig for an API server that knows all kinds and has no object.
func emptyCluster(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(`{"items":[]}`)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// runPlugin runs the program as kubectl does, and returns its output.
func runPlugin(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := plugin()
	var out strings.Builder
	command.Writer, command.ErrWriter = &out, &out
	err := command.Run(t.Context(), append([]string{pluginName}, args...))
	return out.String(), err
}

func TestEveryCommandRefusesANamespaceWithoutAnInstallation(t *testing.T) {
	config, bundle := emptyCluster(t), filepath.Join(t.TempDir(), "bundle.tar.gz")
	for _, args := range [][]string{
		{"status"},
		{"status", "-o", "json"},
		{"explain", "volume", "v"},
		{"explain", "node", "n"},
		{"explain", "disk", "d"},
		{"explain", "claim", "shop/data"},
		{"support-bundle", "-f", bundle},
	} {
		out, err := runPlugin(t, append(args, "--kubeconfig", config, "-n", "wrong")...)
		if err == nil || err.Error() != `no installation is in namespace "wrong"` || out != "" {
			t.Errorf("%v says %v and prints %q", args, err, out)
		}
	}
	if _, err := os.Stat(bundle); !os.IsNotExist(err) {
		t.Errorf("a bundle of nothing is left: %v", err)
	}
}

func TestTheDoctorInAPodNamesThePodsNamespace(t *testing.T) {
	for _, tc := range []struct {
		name       string
		asked      string
		isSet      bool
		pod        string
		want, fail string
	}{
		{"on the node itself → what is asked for", "storage", true, "", "storage", ""},
		{"in a pod → the pod's", "longhorn-system", false, "storage", "storage", ""},
		{"in a pod, asked for the same → the same", "storage", true, "storage", "storage", ""},
		{"in a pod, asked for another → refused", "wrong", true, "storage", "", `namespace "wrong" is not the namespace of the installation of this pod, which is storage; omit -n`},
	} {
		got, err := doctorNamespace(tc.asked, tc.isSet, tc.pod)
		if got != tc.want || (err == nil) != (tc.fail == "") || err != nil && err.Error() != tc.fail {
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
}
