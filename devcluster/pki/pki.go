// Package pki creates the certificates of a temporary cluster: one authority, one serving certificate per server and
// one client certificate per identity. It must not know where servers run or which files they read. The caller chooses
// the user and group names to which Kubernetes gives a meaning.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime is the lifetime of every certificate. A development cluster lives for hours; a year is enough even for one
// that is forgotten.
const lifetime = 365 * 24 * time.Hour

// Pair is a certificate and its private key, both PEM.
type Pair struct {
	Cert []byte
	Key  []byte
}

// Authority signs certificates. It must be created by NewAuthority or LoadAuthority.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  time.Time
}

// Request describes a certificate. With Hosts or IPs it is also a serving certificate; without them it is only for
// clients.
type Request struct {
	// CommonName is the user name of a client.
	CommonName string
	// Groups are the organizations, which Kubernetes reads as groups.
	Groups []string
	Hosts  []string
	IPs    []net.IP
}

// NewAuthority creates a self-signed authority that is valid from an hour before now, so that a clock that is set back
// does not invalidate a new cluster.
func NewAuthority(commonName string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority key: %w", err)
	}
	t := template(pkix.Name{CommonName: commonName}, now)
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	pair, err := sign(t, t, key, key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %q: %w", commonName, err)
	}
	return LoadAuthority(pair, now)
}

// LoadAuthority loads an authority that NewAuthority created.
func LoadAuthority(p Pair, now time.Time) (*Authority, error) {
	certBlock, _ := pem.Decode(p.Cert)
	keyBlock, _ := pem.Decode(p.Key)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("load authority: no PEM block")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse authority certificate: %w", err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse authority key: %w", err)
	}
	return &Authority{Pair: p, cert: cert, key: key, now: now}, nil
}

// Issue creates a key and signs a certificate for it.
func (a *Authority) Issue(r Request) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of %q: %w", r.CommonName, err)
	}
	t := template(pkix.Name{CommonName: r.CommonName, Organization: r.Groups}, a.now)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(r.Hosts)+len(r.IPs) > 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		t.DNSNames, t.IPAddresses = r.Hosts, r.IPs
	}
	pair, err := sign(t, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %q: %w", r.CommonName, err)
	}
	return pair, nil
}

// NewKeyPair creates a key pair without a certificate (the public key in Cert), to sign service account tokens.
func NewKeyPair() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return Pair{}, fmt.Errorf("encode public signing key: %w", err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), Key: private}, nil
}

func template(subject pkix.Name, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:   subject,
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(lifetime),
	}
}

func sign(t, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, fmt.Errorf("draw serial number: %w", err)
	}
	t.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: private}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
