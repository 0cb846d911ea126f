package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/api/client"
)

// trusting returns the Trust of a server whose certificate the CA, as PEM, has signed.
func trusting(ca []byte, trusted bool) TrustSource {
	return func(context.Context, bool) (client.Trust, error) { return client.Trust{CA: ca, Trusted: trusted}, nil }
}

func trustingServer(s *httptest.Server) TrustSource { return trusting(certificateOf(s), false) }

func certificateOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// testCA returns a CA that has signed only its own certificate.
func testCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// httptestName is a name in the certificate of httptest.
const httptestName = "example.com"

// followerOver returns the Forwarder of a daemon that does not lead and reaches the leader over TLS.
func followerOver(t *testing.T, leader string, way TrustSource) *Forwarder {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	f := NewForwarder(func() (string, bool) { return leader, true }, http.NotFoundHandler(), func() bool { return false }, way, logrus.NewEntry(log))
	f.transport = client.NewTransport(client.TransportOptions{Trust: way, ServerName: httptestName})
	f.proxy.Transport = f.transport
	t.Cleanup(f.Close)
	return f
}

// TestTransport: a token is sent only over TLS and only to a daemon. A request over plain HTTP is sent only to daemons
// of a release without TLS.
func TestTransport(t *testing.T) {
	seen := ""
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = r.Header.Get("Authorization") + "|" + string(body)
	})
	secure, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	defer secure.Close()
	defer plain.Close()
	ca := certificateOf(secure)
	for _, tc := range []struct {
		name   string
		server *httptest.Server
		way    client.Trust
		want   string // what the server receives; "": nothing
	}{
		{"a daemon with the certificate → the token", secure, client.Trust{CA: ca}, "Bearer secret|body"},
		{"the mode is on, a daemon with TLS → the token", secure, client.Trust{CA: ca, Trusted: true}, "Bearer secret|body"},
		{"another certificate → nothing", secure, client.Trust{CA: testCA(t)}, ""},
		{"another certificate while the mode is on → nothing", secure, client.Trust{CA: testCA(t), Trusted: true}, ""},
		{"a daemon without TLS, no CA published → no token", plain, client.Trust{}, "|body"},
		{"a daemon without TLS among newer ones, the mode is on → no token", plain, client.Trust{CA: ca, Trusted: true}, "|body"},
		{"a daemon without TLS, the mode is off → nothing", plain, client.Trust{CA: ca}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen = ""
			transport := client.NewTransport(client.TransportOptions{
				Trust: func(context.Context, bool) (client.Trust, error) { return tc.way, nil }, ServerName: httptestName,
				Token: func() (string, error) { return "secret", nil },
			})
			defer transport.CloseIdleConnections()
			// A body that can be read once, like the body of a request that is passed on.
			r, err := http.NewRequestWithContext(t.Context(), "POST", tc.server.URL, io.NopCloser(strings.NewReader("body")))
			require.NoError(t, err)
			response, err := transport.RoundTrip(r)
			if tc.want == "" {
				var insecure *client.InsecureError
				require.ErrorAs(t, err, &insecure)
			} else {
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
			}
			assert.Equal(t, tc.want, seen)
		})
	}
}

// TestTransportLearnsANewCA: for an unknown certificate, the transport reads the CA again before the request fails.
func TestTransportLearnsANewCA(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	old := testCA(t)
	transport := client.NewTransport(client.TransportOptions{ServerName: httptestName, Trust: func(_ context.Context, fresh bool) (client.Trust, error) {
		if fresh {
			return client.Trust{CA: certificateOf(server)}, nil
		}
		return client.Trust{CA: old}, nil
	}})
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
	require.NoError(t, err)
	response, err := transport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
}
