package trust

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Identity is the daemons' certificate and the CAs that they trust, read from the Secret.
type Identity struct {
	trusted func() bool
	secret  cachedRead[identity]
}

type identity struct {
	certificate *tls.Certificate // nil: the Secret does not exist
	ca          []byte
}

// NewIdentity returns an Identity that reads the Secret when it is used. trusted reports whether trusted-network mode
// is on.
func NewIdentity(kube kubernetes.Interface, namespace string, trusted func() bool, c clock.PassiveClock) *Identity {
	i := &Identity{trusted: trusted}
	i.secret.clock = c
	i.secret.exists = func(v identity) bool { return v.certificate != nil }
	i.secret.read = func(ctx context.Context) (identity, error) {
		secret, err := kube.CoreV1().Secrets(namespace).Get(ctx, types.APITLSSecret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return identity{}, nil
		}
		if err != nil {
			return identity{}, fmt.Errorf("read Secret %s: %w", types.APITLSSecret, err)
		}
		certificate, err := tls.X509KeyPair(secret.Data[certificateKey], secret.Data[privateKey])
		if err != nil {
			return identity{}, fmt.Errorf("read the certificate in Secret %s: %w", types.APITLSSecret, err)
		}
		return identity{&certificate, secret.Data[types.APICAKey]}, nil
	}
	return i
}

// Certificate returns the certificate with which this daemon serves. It returns an error while the leader has not
// created one.
func (i *Identity) Certificate(ctx context.Context) (*tls.Certificate, error) {
	v, err := i.secret.get(ctx, false)
	if err != nil {
		return nil, err
	}
	if v.certificate == nil {
		return nil, errors.New("the leader has not created a certificate yet")
	}
	return v.certificate, nil
}

// Trust returns how this daemon reaches the leader. It implements api.TrustSource.
func (i *Identity) Trust(ctx context.Context, fresh bool) (client.Trust, error) {
	v, err := i.secret.get(ctx, fresh)
	if err != nil {
		return client.Trust{}, err
	}
	return client.Trust{CA: v.ca, Trusted: i.trusted()}, nil
}

// Published is the content of the ConfigMap that clients read.
type Published struct{ configMap cachedRead[client.Trust] }

// NewPublished returns a Published that reads the ConfigMap when it is used.
func NewPublished(kube kubernetes.Interface, namespace string, c clock.PassiveClock) *Published {
	p := &Published{}
	p.configMap.clock = c
	p.configMap.exists = func(w client.Trust) bool { return len(w.CA) > 0 }
	p.configMap.read = func(ctx context.Context) (client.Trust, error) {
		published, err := kube.CoreV1().ConfigMaps(namespace).Get(ctx, types.APICAConfigMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return client.Trust{}, nil
		}
		if err != nil {
			return client.Trust{}, fmt.Errorf("read ConfigMap %s: %w", types.APICAConfigMap, err)
		}
		trusted, err := strconv.ParseBool(published.Data[types.APITrustedKey])
		return client.Trust{CA: []byte(published.Data[types.APICAKey]), Trusted: err == nil && trusted}, nil
	}
	return p
}

// Trust returns how the client reaches a daemon; see client.TransportOptions.
func (p *Published) Trust(ctx context.Context, fresh bool) (client.Trust, error) {
	return p.configMap.get(ctx, fresh)
}
