package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// restClient sends requests to the REST API with all rights, over the protocol of the release in the cluster. That is
// plain HTTP for releases that had no CA.
func restClient(ctx context.Context, t *testing.T, c *cluster.Cluster) *http.Client {
	t.Helper()
	token := restToken(ctx, t, c, "e2e-rest")
	_, err := c.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-rest"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "e2e-rest"}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	return restClientWith(c, func() (string, error) { return token, nil })
}

func restClientWith(c *cluster.Cluster, token func() (string, error)) *http.Client {
	return &http.Client{Transport: client.NewTransport(client.TransportOptions{
		ServerName: types.APIService, Token: token,
		Trust: func(ctx context.Context, _ bool) (client.Trust, error) {
			published, err := c.Kube.CoreV1().ConfigMaps(types.Namespace).Get(ctx, types.APICAConfigMap, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return client.Trust{}, nil
			}
			if err != nil {
				return client.Trust{}, err
			}
			return client.Trust{CA: []byte(published.Data[types.APICAKey]), Trusted: published.Data[types.APITrustedKey] == "true"}, nil
		},
	})}
}

// restToken returns a token of an account in the namespace default, and creates the account if it does not exist.
func restToken(ctx context.Context, t *testing.T, c *cluster.Cluster, account string) string {
	t.Helper()
	accounts := c.Kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	life := int64((12 * time.Hour).Seconds())
	request, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{types.APIAudience}, ExpirationSeconds: &life},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// TestRESTWantsACredential: in a new installation, a client that can only reach the port can read and delete nothing.
func TestRESTWantsACredential(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	api := restOf(ctx, t, c)
	t.Run("plain HTTP → 403", func(t *testing.T) {
		plain := restAPI{strings.Replace(api.base, "https://", "http://", 1), &http.Client{}}
		answer := plain.do(ctx, t, http.MethodDelete, "/volumes/any", nil, http.StatusForbidden, nil)
		assert.Contains(t, answer, "plain HTTP is refused")
	})
	t.Run("a token for the API server → 401", func(t *testing.T) {
		request, err := c.Kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, "e2e-rest", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		other := restAPI{api.base, restClientWith(c, func() (string, error) { return request.Status.Token, nil })}
		other.do(ctx, t, http.MethodDelete, "/volumes/any", nil, http.StatusUnauthorized, nil)
	})
	t.Run("an account without rights → 403", func(t *testing.T) {
		token := restToken(ctx, t, c, "e2e-rest-powerless")
		powerless := restAPI{api.base, restClientWith(c, func() (string, error) { return token, nil })}
		answer := powerless.do(ctx, t, http.MethodDelete, "/volumes/any", nil, http.StatusForbidden, nil)
		assert.Contains(t, answer, "has no right to delete volumes.longhorn.io any")
	})
}
