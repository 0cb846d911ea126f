package nbd

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

// Authentication is a private option, sent before NBD_OPT_GO for an export that wants it:
//
//	client  optAuth, no data                        asks for a nonce
//	server  repAuthNonce, 32 random bytes           replaces any nonce given before
//	client  optAuth, proof (32 bytes) then name     proof = HMAC-SHA256(secret, authLabel || nonce || name)
//	server  ACK, or NBD_REP_ERR_POLICY              the nonce is spent either way
//
// A proof is good for the one export it names, on the one connection that holds the nonce. Limits: it shows that the peer knew
// the secret when it connected and nothing more. It does not prove the server to the client, it does not hide anything, and it
// does not protect what is sent after it: an attacker who can change packets on the path can take the connection over. TLS will
// close that.
const (
	authLabel = "longhorn-nbd-auth-v1"
	nonceLen  = 32
	proofLen  = sha256.Size

	// maxAuthFailures is how many wrong proofs a connection may offer before it is cut.
	maxAuthFailures = 3
)

// authProof computes the proof of secret for name. The nonce has a fixed length, so what is hashed can be read one way only.
func authProof(secret, nonce []byte, name string) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(authLabel))
	m.Write(nonce)
	m.Write([]byte(name))
	return m.Sum(nil)
}

// authenticator is the server's side for one connection.
type authenticator struct {
	secret   func(export string) (secret []byte, required bool)
	nonce    []byte          // nil when there is none to answer
	proved   map[string]bool // export names whose secret the peer has shown to know
	failures int
}

// challenge makes a new nonce.
func (a *authenticator) challenge() ([]byte, error) {
	a.nonce = make([]byte, nonceLen)
	if _, err := rand.Read(a.nonce); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	return a.nonce, nil
}

// verify judges proof-then-name against the nonce, which it spends. An export without a secret cannot be proved: an empty key
// would be one that everybody knows.
func (a *authenticator) verify(data []byte) bool {
	nonce := a.nonce
	a.nonce = nil
	if nonce == nil || len(data) < proofLen || len(data) > proofLen+maxName {
		a.failures++
		return false
	}
	name := string(data[proofLen:])
	secret, _ := a.secret(name)
	ok := hmac.Equal(authProof(secret, nonce, name), data[:proofLen])
	if !ok || len(secret) == 0 {
		a.failures++
		return false
	}
	if a.proved == nil {
		a.proved = map[string]bool{}
	}
	a.proved[name] = true
	return true
}

// admits says whether the peer may open name as far as authentication goes.
func (a *authenticator) admits(name string) bool {
	if a.secret == nil || a.proved[name] {
		return true
	}
	_, required := a.secret(name)
	return !required
}
