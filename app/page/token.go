package page

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// The account for tokens by default, and the manifest with which an administrator creates it.
const (
	DefaultAccount  = "operator"
	accountManifest = "deploy/examples/operator.yaml"
)

// How long a token is valid: by default, and at least, which is a limit of the API server.
const (
	DefaultDuration  = time.Hour
	ShortestDuration = 10 * time.Minute
)

// token is a token for the REST API. It has no String method: only show prints it.
type token struct {
	text    string
	expires time.Time
}

// token creates a token of the account, only for the REST API of the installation: the API server does not accept it.
func (o Options) token(ctx context.Context) (token, error) {
	if o.Account == "" {
		return token{}, nil
	}
	seconds := int64(o.Duration / time.Second)
	r, err := o.Kube.CoreV1().ServiceAccounts(o.Namespace).CreateToken(ctx, o.Account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{types.APIAudience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return token{}, fmt.Errorf("ServiceAccount %s does not exist in namespace %s: create it with kubectl apply -f %s, or name another one with --account",
			o.Account, o.Namespace, accountManifest)
	case apierrors.IsForbidden(err):
		return token{}, fmt.Errorf("your account may not create a token of ServiceAccount %s: request the right create on serviceaccounts/token in namespace %s, or log in with a token that you have (--account=)",
			o.Account, o.Namespace)
	case err != nil:
		return token{}, fmt.Errorf("create a token of ServiceAccount %s: %w", o.Account, err)
	}
	return token{r.Status.Token, r.Status.ExpirationTimestamp.Time}, nil
}
