package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/longhorn-lep/longhorn-manager/explain"
)

// userConfig returns the configuration of a client for the user of a kubeconfig. An empty path means the files in
// $KUBECONFIG, ~/.kube/config, or in a pod its service account. An empty context means the current one. The error is
// one sentence with the next step.
func userConfig(path, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = path, false
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, kubeconfigError(err, rules, context)
	}
	return config, nil
}

// kubeconfigError explains why the files of rules name no cluster and user.
func kubeconfigError(err error, rules *clientcmd.ClientConfigLoadingRules, context string) error {
	found, missing := kubeconfigFiles(rules)
	file := "kubeconfig " + strings.Join(found, ", ")
	var contexts []string
	if config, err := rules.Load(); err == nil {
		contexts = slices.Sorted(maps.Keys(config.Contexts))
		if context == "" {
			context = config.CurrentContext
		}
	}
	switch {
	case rules.ExplicitPath != "" && len(missing) > 0:
		return fmt.Errorf("kubeconfig %s does not exist: name another file with --kubeconfig", rules.ExplicitPath)
	case len(found) == 0 && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return fmt.Errorf("no kubeconfig was found: %s, which $KUBECONFIG names, does not exist; correct $KUBECONFIG, or name the file with --kubeconfig",
			strings.Join(missing, ", "))
	case len(found) == 0:
		return fmt.Errorf("no kubeconfig was found: %s does not exist; name the file with --kubeconfig or $KUBECONFIG", strings.Join(missing, ", "))
	case context != "" && !slices.Contains(contexts, context) && len(contexts) > 0:
		return fmt.Errorf("%s has no context %q%s", file, context, instead(context, contexts))
	case len(contexts) > 0 && context == "":
		return fmt.Errorf("%s has no current context: choose one with --context; there are %s", file, strings.Join(contexts, ", "))
	case clientcmd.IsEmptyConfig(err):
		return fmt.Errorf("%s names no cluster: name another file with --kubeconfig or $KUBECONFIG", file)
	}
	return fmt.Errorf("%s cannot be used: %w; correct the file, or name another one with --kubeconfig", file, err)
}

// kubeconfigFiles returns the files of rules that exist, and those that do not.
func kubeconfigFiles(rules *clientcmd.ClientConfigLoadingRules) (found, missing []string) {
	for _, file := range rules.GetLoadingPrecedence() {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, file)
		} else {
			found = append(found, file)
		}
	}
	return found, missing
}

// instead returns the end of an error about a name that does not exist: the name that the user may have meant, or all
// names.
func instead(typed string, names []string) string {
	if nearest := explain.Nearest(typed, names); nearest != "" {
		return fmt.Sprintf("; did you mean %q?", nearest)
	}
	if len(names) == 0 {
		return ""
	}
	return "; there are " + strings.Join(names, ", ")
}

// namingServer makes the actions of commands explain the errors of an API server that cannot be used.
func namingServer(commands []*cli.Command) []*cli.Command {
	for _, c := range commands {
		namingServer(c.Commands)
		if act := c.Action; act != nil {
			c.Action = func(ctx context.Context, c *cli.Command) error { return serverError(act(ctx, c)) }
		}
	}
	return commands
}

// serverError explains an error of a client that could not reach the API server, or that the API server does not know.
// It returns any other error as it is.
func serverError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if apierrors.IsUnauthorized(err) {
		return errors.New("the API server does not accept your credentials: log in again, or name another kubeconfig or context with --kubeconfig or --context")
	}
	var request *url.Error
	if !errors.As(err, &request) {
		return err
	}
	server := request.URL
	if address, err := url.Parse(request.URL); err == nil {
		server = address.Scheme + "://" + address.Host
	}
	unknown, hostname, invalid := x509.UnknownAuthorityError{}, x509.HostnameError{}, x509.CertificateInvalidError{}
	if errors.As(err, &unknown) || errors.As(err, &hostname) || errors.As(err, &invalid) {
		return fmt.Errorf("the certificate of API server %s is not valid for your kubeconfig: %w; the kubeconfig may be of another cluster, see kubectl config view --minify", server, request.Err)
	}
	return fmt.Errorf("API server %s does not answer: %w; check the address with kubectl config view --minify, or name another kubeconfig with --kubeconfig", server, request.Err)
}
