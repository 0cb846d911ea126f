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

// The life of a certificate.
const (
	// certificateLife is how long one is good.
	certificateLife = 90 * 24 * time.Hour
	// renewBefore is how long before its end the next one is made.
	renewBefore = 30 * 24 * time.Hour
	// announceFor is how long the next certificate's CA is published before daemons serve with it, so that all clients know it by then.
	announceFor = 24 * time.Hour
	// backdated allows for clocks that differ.
	backdated = 10 * time.Minute
)

// Keys of the Secret, besides types.APICAKey. What begins with next is announced and not served yet.
const (
	certificateKey     = "tls.crt"
	privateKey         = "tls.key"
	nextCertificateKey = "next.crt"
	nextPrivateKey     = "next.key"
)

// pair is a certificate with its key and the CA that signed it, all PEM. The CA's own key is thrown away as soon as it has signed:
// nobody can make another certificate that clients trust.
type pair struct{ certificate, key, ca []byte }

// newPair makes a certificate for the daemons of a namespace.
func newPair(namespace string, now time.Time) (pair, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the CA's key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the daemons' key: %w", err)
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

// serial is a random serial number of 127 bits (RFC 5280 section 4.1.2.2 has 20 octets at most).
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// renewed returns the Secret's data as it must be now; data itself when nothing is to be done. newPair is called when a certificate is
// to be made.
//
//	no certificate that is good                  → one is made and served at once
//	the served one ends within renewBefore       → the next one is made, and its CA announced
//	the next one has been announced announceFor, → it is served; what it replaces stays trusted until its end
//	  or the served one has ended
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

// leafOf is the certificate of a key, if it is good now; nil otherwise.
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

// unexpired are the certificates of a bundle that are good now or will be.
func unexpired(bundle []byte, now time.Time) []byte {
	all, err := parse(bundle)
	if err != nil {
		return nil // whatever it was, nobody could trust it
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

// namesOf are the names by which pods reach a Service.
func namesOf(service, namespace string) []string {
	name := service + "." + namespace
	return []string{service, name, name + ".svc", name + ".svc.cluster.local"}
}
