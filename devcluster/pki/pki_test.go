package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"
)

func TestIssuedCertificates(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	made, err := NewAuthority("test-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := LoadAuthority(made.Pair, now)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.Cert) {
		t.Fatal("authority certificate does not parse")
	}
	server := Request{CommonName: "api", Hosts: []string{"kubernetes"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	client := Request{CommonName: "admin", Groups: []string{"system:masters"}}
	for name, c := range map[string]struct {
		req   Request
		at    time.Time
		host  string
		usage x509.ExtKeyUsage
		ok    bool
	}{
		"server by name → trusted":                {server, now, "kubernetes", x509.ExtKeyUsageServerAuth, true},
		"server by address → trusted":             {server, now, "127.0.0.1", x509.ExtKeyUsageServerAuth, true},
		"server by another name → refused":        {server, now, "other", x509.ExtKeyUsageServerAuth, false},
		"server as client → trusted":              {server, now, "", x509.ExtKeyUsageClientAuth, true},
		"client as client → trusted":              {client, now, "", x509.ExtKeyUsageClientAuth, true},
		"client as server → refused":              {client, now, "", x509.ExtKeyUsageServerAuth, false},
		"clock half an hour back → still trusted": {client, now.Add(-30 * time.Minute), "", x509.ExtKeyUsageClientAuth, true},
		"more than a year later → refused":        {client, now.Add(366 * 24 * time.Hour), "", x509.ExtKeyUsageClientAuth, false},
	} {
		t.Run(name, func(t *testing.T) {
			pair, err := a.Issue(c.req)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatalf("certificate and key do not belong together: %v", err)
			}
			if loaded.Leaf.Subject.CommonName != c.req.CommonName {
				t.Errorf("common name %q, want %q", loaded.Leaf.Subject.CommonName, c.req.CommonName)
			}
			_, err = loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: c.at, DNSName: c.host, KeyUsages: []x509.ExtKeyUsage{c.usage}})
			if (err == nil) != c.ok {
				t.Errorf("verify: %v, want ok %v", err, c.ok)
			}
		})
	}
}

func TestLoadAuthorityRefusesWhatIsNotPEM(t *testing.T) {
	if _, err := LoadAuthority(Pair{Cert: []byte("x"), Key: []byte("y")}, time.Now()); err == nil {
		t.Error("no error")
	}
}
