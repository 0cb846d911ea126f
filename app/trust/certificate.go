package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// The lifetime of a certificate.
const (
	// certificateLife is how long a certificate is valid.
	certificateLife = 90 * 24 * time.Hour
	// renewBefore is the time before the end of a certificate at which the next certificate is created.
	renewBefore = 30 * 24 * time.Hour
	// announceFor is how long the CA of the next certificate is published before daemons serve with that certificate.
	// In this time all clients learn the CA.
	announceFor = 24 * time.Hour
	// backdated allows for clock differences.
	backdated = 10 * time.Minute
)

// Keys of the Secret, in addition to types.APICAKey. The keys with the prefix "next." belong to a certificate that is
// announced but not served yet.
const (
	certificateKey     = "tls.crt"
	privateKey         = "tls.key"
	nextCertificateKey = "next.crt"
	nextPrivateKey     = "next.key"
)

// pair is a certificate with its key and the CA that signed it, all in PEM. The CA's own key is discarded as soon as
// it has signed, so that no other certificate that clients trust can be created.
type pair struct{ certificate, key, ca []byte }

// newPair creates a certificate for the daemons of a namespace.
func newPair(namespace string, now time.Time) (pair, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("create the CA's key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("create the daemons' key: %w", err)
	}
	caTemplate := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: fmt.Sprintf("%s CA of %s", types.APIService, now.UTC().Format(time.DateOnly))},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca, err := x509.CreateCertificate(rand.Reader, caTemplate, caTemplate, caKey.Public(), caKey)
	if err != nil {
		return pair{}, fmt.Errorf("sign the CA: %w", err)
	}
	name := types.APIService
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(certificateLife),
		DNSNames: slices.Concat(namesOf(name, namespace), namesOf(types.PageService, namespace)),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, caTemplate, key.Public(), caKey)
	if err != nil {
		return pair{}, fmt.Errorf("sign the daemons' certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode the daemons' key: %w", err)
	}
	return pair{certificate: encode("CERTIFICATE", signed), key: encode("PRIVATE KEY", der), ca: encode("CERTIFICATE", ca)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serial returns a random serial number of 127 bits (RFC 5280 section 4.1.2.2 allows 20 octets at most).
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// renewed returns the Secret's data as they must be now. If no change is needed, it returns data itself. It calls
// newPair to create a certificate.
//
//	no certificate is valid                         → one is created and served at once
//	the served one expires within renewBefore       → the next one is created, and its CA is announced
//	the next one has been announced for announceFor → it is served; the replaced one stays trusted until it expires
//	  or the served one has expired
func renewed(data map[string][]byte, now time.Time, newPair func() (pair, error)) (map[string][]byte, error) {
	served, next := leafOf(data[certificateKey], data[privateKey], now), leafOf(data[nextCertificateKey], data[nextPrivateKey], now)
	announced := next != nil && !now.Before(next.NotBefore.Add(backdated+announceFor))
	switch {
	case next != nil && (announced || served == nil):
		return map[string][]byte{
			certificateKey: data[nextCertificateKey], privateKey: data[nextPrivateKey], types.APICAKey: unexpired(data[types.APICAKey], now),
		}, nil
	case served == nil:
		made, err := newPair()
		if err != nil {
			return nil, err
		}
		return map[string][]byte{
			certificateKey: made.certificate, privateKey: made.key, types.APICAKey: append(unexpired(data[types.APICAKey], now), made.ca...),
		}, nil
	case next == nil && now.After(served.NotAfter.Add(-renewBefore)):
		made, err := newPair()
		if err != nil {
			return nil, err
		}
		return map[string][]byte{
			certificateKey: data[certificateKey], privateKey: data[privateKey],
			nextCertificateKey: made.certificate, nextPrivateKey: made.key,
			types.APICAKey: append(unexpired(data[types.APICAKey], now), made.ca...),
		}, nil
	}
	return data, nil
}

// leafOf returns the certificate of a key, if it is valid now; nil otherwise.
func leafOf(certificate, key []byte, now time.Time) *x509.Certificate {
	all, err := parse(certificate)
	if err != nil || len(all) == 0 || now.Before(all[0].NotBefore) || now.After(all[0].NotAfter) {
		return nil
	}
	if block, _ := pem.Decode(key); block == nil {
		return nil
	}
	return all[0]
}

// unexpired returns the certificates of a bundle that are valid now or later.
func unexpired(bundle []byte, now time.Time) []byte {
	all, err := parse(bundle)
	if err != nil {
		return nil // no client can trust an unreadable bundle
	}
	var kept bytes.Buffer
	for _, c := range all {
		if !now.After(c.NotAfter) {
			kept.Write(encode("CERTIFICATE", c.Raw))
		}
	}
	return kept.Bytes()
}

func parse(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("the text is not PEM")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all, text = append(all, c), rest
	}
	return all, nil
}

// namesOf returns the names by which pods reach a Service.
func namesOf(service, namespace string) []string {
	name := service + "." + namespace
	return []string{service, name, name + ".svc", name + ".svc.cluster.local"}
}
