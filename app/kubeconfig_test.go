package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig writes a kubeconfig for a server. change may be nil.
func kubeconfig(t *testing.T, server string, change func(*clientcmdapi.Config)) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["home"], config.Contexts["work"] = &clientcmdapi.Context{Cluster: "c"}, &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "home"
	if change != nil {
		change(config)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

func TestAKubeconfigThatCannotBeUsedIsExplained(t *testing.T) {
	outsidePods(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	whole := kubeconfig(t, "https://127.0.0.1:6443", nil)
	noContext := kubeconfig(t, "https://127.0.0.1:6443", func(c *clientcmdapi.Config) { c.CurrentContext = "" })
	noCA := kubeconfig(t, "https://127.0.0.1:6443", func(c *clientcmdapi.Config) { c.Clusters["c"].CertificateAuthority = dir + "/none" })
	for _, tc := range []struct {
		name, env, path, context string
		want                     string
	}{
		{"all is there → no error", "", whole, "", ""},
		{"another context → no error", "", whole, "work", ""},
		{"named by the variable → no error", whole, "", "", ""},
		{"one of two files is missing → no error", dir + "/none:" + whole, "", "", ""},
		{"the named file is missing → another file", "", dir + "/none", "", "kubeconfig " + dir + "/none does not exist: name another file with --kubeconfig"},
		{
			"the variable's file is missing → the variable", dir + "/none", "", "",
			"no kubeconfig was found: " + dir + "/none, which $KUBECONFIG names, does not exist; correct $KUBECONFIG, or name the file with --kubeconfig",
		},
		{"a mistyped context → the context that was meant", "", whole, "wrok", "kubeconfig " + whole + ` has no context "wrok"; did you mean "work"?`},
		{"an unknown context → all contexts", "", whole, "production", "kubeconfig " + whole + ` has no context "production"; there are home, work`},
		{"no current context → choose", "", noContext, "", "kubeconfig " + noContext + " has no current context: choose one with --context; there are home, work"},
		{"an empty file → another file", "", write("empty", ""), "", "kubeconfig " + dir + "/empty names no cluster: name another file with --kubeconfig or $KUBECONFIG"},
		{"not YAML → the error", "", write("text", "{"), "", "kubeconfig " + dir + "/text cannot be used: "},
		{"a CA that is missing → the error", "", noCA, "", "kubeconfig " + noCA + " cannot be used: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			_, err := userConfig(tc.path, tc.context)
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.True(t, err.Error() == tc.want || strings.HasSuffix(tc.want, ": ") && strings.HasPrefix(err.Error(), tc.want), "%v", err)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

// outsidePods makes sure that the service account of a pod is not used.
func outsidePods(t *testing.T) {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
}

func TestAServerThatCannotBeUsedIsExplained(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer refuses.Close()
	otherCA := httptest.NewTLSServer(http.NotFoundHandler())
	defer otherCA.Close()
	for _, tc := range []struct{ name, server, want string }{
		{"nothing listens → the address", closed.URL, "API server " + closed.URL + " does not answer: "},
		{"the user is not known → log in", refuses.URL, "the API server does not accept your credentials: log in again"},
		{"another CA → another cluster", otherCA.URL, "the certificate of API server " + otherCA.URL + " is not valid for your kubeconfig: "},
	} {
		for _, args := range [][]string{{"status"}, {"explain", "volume", "v"}} {
			_, err := runPlugin(t, append(args, "--kubeconfig", kubeconfig(t, tc.server, nil))...)
			assert.ErrorContains(t, err, tc.want, "%s: %q", tc.name, args)
		}
	}
}

func TestOtherErrorsStay(t *testing.T) {
	for _, err := range []error{
		nil, errors.New("volume v does not exist"), fmt.Errorf("list: %w", &url.Error{Op: "Get", URL: "https://a", Err: context.Canceled}),
	} {
		assert.Equal(t, err, serverError(err))
	}
}
