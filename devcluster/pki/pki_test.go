package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIssuedCertificates(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	made, err := NewAuthority("test-ca", now)
	require.NoError(t, err)
	a, err := LoadAuthority(made.Pair, now)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(a.Cert), "authority certificate does not parse")
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
			require.NoError(t, err)
			loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
			require.NoError(t, err, "certificate and key do not belong together")
			assert.Equal(t, c.req.CommonName, loaded.Leaf.Subject.CommonName)
			_, err = loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: c.at, DNSName: c.host, KeyUsages: []x509.ExtKeyUsage{c.usage}})
			assert.Equal(t, c.ok, err == nil, err)
		})
	}
}

func TestLoadAuthorityRefusesWhatIsNotPEM(t *testing.T) {
	_, err := LoadAuthority(Pair{Cert: []byte("x"), Key: []byte("y")}, time.Now())
	assert.Error(t, err)
}
