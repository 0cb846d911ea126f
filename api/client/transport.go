package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Trust is how the API can be reached, as the leader publishes it.
type Trust struct {
	// CA contains the certificates, as PEM, that sign the daemons' certificates. Empty: the leader has published none,
	// so its release has no TLS.
	CA []byte
	// Trusted: trusted-network mode is on. Daemons of a release without TLS may still run together with newer ones.
	Trusted bool
}

// TransportOptions say how a Transport reaches the API. Trust and ServerName must be given.
type TransportOptions struct {
	// Trust returns how the API can be reached. It may cache its answer; if fresh is set, it must find out again.
	Trust func(ctx context.Context, fresh bool) (Trust, error)
	// Token returns the bearer token of each request; nil: requests keep the Authorization that they have.
	Token func() (string, error)
	// ServerName is the DNS name that the daemons' certificates must have; all daemons have the same.
	ServerName string
	// Base is the transport that provides the time-outs; nil: the default transport of net/http.
	Base *http.Transport
}

// Transport sends requests over TLS with a token. It uses plain HTTP, and then omits the token, only for a daemon of a
// release without TLS. It assumes such a daemon while no CA is published, and, in trusted-network mode, if a daemon
// answers a TLS handshake with HTTP. A Transport may be used by several goroutines.
type Transport struct {
	o     TransportOptions
	plain *http.Transport

	mu     sync.Mutex
	ca     []byte          // guarded by mu; the CA that secure trusts
	secure *http.Transport // guarded by mu; nil until there is a CA
}

// NewTransport returns a Transport. It opens no connection.
func NewTransport(o TransportOptions) *Transport {
	if o.Base == nil {
		o.Base = http.DefaultTransport.(*http.Transport)
	}
	plain := o.Base.Clone()
	plain.Proxy = nil // a proxy would see tokens, and could answer for the daemons
	return &Transport{o: o, plain: plain}
}

// InsecureError means that a request was not sent: the server could not prove that it is a daemon.
type InsecureError struct {
	Host string
	Err  error
}

// Error returns which server is meant, and how the user can fix it.
func (e *InsecureError) Error() string {
	if e.isPlain() {
		return fmt.Sprintf("%s answers in plain HTTP, like a daemon of a release without TLS; requests are sent to such a daemon only while setting rest-trusted-network is true", e.Host)
	}
	return fmt.Sprintf("the certificate of %s is not trusted as a certificate of a longhorn-manager daemon: %v", e.Host, e.Err)
}

// Unwrap returns the cause.
func (e *InsecureError) Unwrap() error { return e.Err }

func (e *InsecureError) isPlain() bool {
	var header tls.RecordHeaderError
	return errors.As(e.Err, &header) && string(header.RecordHeader[:]) == "HTTP/"
}

// RoundTrip implements http.RoundTripper. An *InsecureError means that nothing was sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	if body != nil {
		defer func() { _ = body.Close() }()
	}
	trust, err := t.o.Trust(r.Context(), false)
	if err != nil {
		return nil, fmt.Errorf("read how to reach the REST API: %w", err)
	}
	if len(trust.CA) == 0 {
		return t.sendPlain(r)
	}
	response, err := t.sendSecure(r, trust.CA)
	var insecure *InsecureError
	if !errors.As(err, &insecure) {
		return response, err
	}
	// The certificates may have been replaced, or the mode changed, since Trust was called.
	fresh, freshErr := t.o.Trust(r.Context(), true)
	switch {
	case freshErr != nil:
		return nil, errors.Join(err, freshErr)
	case insecure.isPlain() && (fresh.Trusted || len(fresh.CA) == 0):
		return t.sendPlain(r)
	case !insecure.isPlain() && !bytes.Equal(fresh.CA, trust.CA) && len(fresh.CA) > 0:
		return t.sendSecure(r, fresh.CA)
	}
	return nil, err
}

// sendPlain sends a request without its credential: anyone on the network path could read it.
func (t *Transport) sendPlain(r *http.Request) (*http.Response, error) {
	out := attempt(r)
	out.URL.Scheme = "http"
	out.Header.Del("Authorization")
	return t.plain.RoundTrip(out)
}

func (t *Transport) sendSecure(r *http.Request, ca []byte) (*http.Response, error) {
	out := attempt(r)
	out.URL.Scheme = "https"
	if t.o.Token != nil {
		token, err := t.o.Token()
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		out.Header.Set("Authorization", "Bearer "+token)
	}
	secure, err := t.transportFor(ca)
	if err != nil {
		return nil, err
	}
	response, err := secure.RoundTrip(out)
	var header tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &header) || errors.As(err, &certificate) {
		return nil, &InsecureError{Host: r.URL.Host, Err: err}
	}
	return response, err
}

// attempt returns a copy of a request. The body of the copy stays open if the handshake fails: RoundTrip closes it.
func attempt(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = io.NopCloser(r.Body)
	}
	return out
}

// transportFor returns the transport that trusts the CA. The transport for an earlier CA is closed after its requests
// have ended.
func (t *Transport) transportFor(ca []byte) (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.secure != nil && bytes.Equal(t.ca, ca) {
		return t.secure, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the published CA contains no certificate")
	}
	if t.secure != nil {
		t.secure.CloseIdleConnections()
	}
	t.secure = t.plain.Clone()
	t.secure.TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: t.o.ServerName, MinVersion: tls.VersionTLS12}
	t.secure.ForceAttemptHTTP2 = false
	t.ca = bytes.Clone(ca)
	return t.secure, nil
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.secure != nil {
		t.secure.CloseIdleConnections()
	}
}
