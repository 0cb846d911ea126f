package nbd

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
)

// Authentication is a private option. The client sends it before NBD_OPT_GO, for an export that requires it. Over TLS
// each end proves the secret to the other:
//
//	client  optAuthTLS, proof (32 bytes)            HMAC-SHA256(secret, tlsAuthLabel || "client" || binding)
//	server  repAuthProof, proof (32 bytes), ACK     HMAC-SHA256(secret, tlsAuthLabel || "server" || binding)
//	        or NBD_REP_ERR_POLICY
//
// The binding is the key material that TLS exports as "EXPORTER-Channel-Binding" (RFC 9266). Both ends of one TLS
// connection have the same binding, no other connection ever has it, and neither end can choose it. So a relay that
// terminates TLS on both of its sides cannot forward a proof, and a recorded proof is worthless. The client sends no
// name before the server has proved itself: the server tries the secrets that it knows until one fits. The proof opens
// every export with that secret.
//
// Without TLS only the client proves itself:
//
//	client  optAuth, no data                        requests a nonce
//	server  repAuthNonce, 32 random bytes           replaces any nonce given before
//	client  optAuth, proof (32 bytes) then name     proof = HMAC-SHA256(secret, authLabel || nonce || name)
//	server  ACK, or NBD_REP_ERR_POLICY              the nonce is spent either way
//
// Such a proof is valid for the one export that it names, on the one connection that holds the nonce. It shows only
// that the peer knew the secret when it connected. It does not prove the server to the client, and it hides nothing. An
// attacker who can change packets on the path can take the connection over. Over TLS the server refuses it.
const (
	authLabel    = "longhorn-nbd-auth-v1"
	tlsAuthLabel = "longhorn-nbd-auth-v2"
	nonceLen     = 32
	proofLen     = sha256.Size

	// maxAuthFailures is how many wrong proofs a connection may offer before the server cuts it.
	maxAuthFailures = 3
)

// end is one of the two ends of a connection.
type end string

const (
	clientEnd end = "client"
	serverEnd end = "server"
)

// channelProof computes the proof of secret by one end of the TLS connection with that binding.
func channelProof(secret, binding []byte, by end) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(tlsAuthLabel))
	m.Write([]byte(by))
	m.Write(binding)
	return m.Sum(nil)
}

// authProof computes the proof of secret for name. The nonce has a fixed length, so the hashed bytes can be parsed in
// only one way.
func authProof(secret, nonce []byte, name string) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(authLabel))
	m.Write(nonce)
	m.Write([]byte(name))
	return m.Sum(nil)
}

// authenticator is the server's side of authentication on one connection.
type authenticator struct {
	secret   func(export string) (secret []byte, required bool)
	secrets  func() [][]byte // the secrets that a peer may prove over TLS
	nonce    []byte          // nil if there is none to answer
	proved   map[string]bool // names of exports; the peer has proved their secrets without TLS
	binding  []byte          // of the TLS connection; nil without TLS
	known    [][]byte        // secrets that the peer has proved over TLS
	failures int
}

// challenge creates a new nonce.
func (a *authenticator) challenge() ([]byte, error) {
	a.nonce = make([]byte, nonceLen)
	if _, err := rand.Read(a.nonce); err != nil {
		return nil, fmt.Errorf("create a nonce: %w", err)
	}
	return a.nonce, nil
}

// verify checks proof-then-name against the nonce, which it spends. An export without a secret cannot be proved,
// because everybody knows an empty key.
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

// verifyChannel checks a proof over TLS and returns the server's own proof, or nil if the client's proof is wrong.
func (a *authenticator) verifyChannel(proof []byte) []byte {
	for _, secret := range a.secrets() {
		if len(secret) > 0 && hmac.Equal(channelProof(secret, a.binding, clientEnd), proof) {
			a.known = append(a.known, secret)
			return channelProof(secret, a.binding, serverEnd)
		}
	}
	a.failures++
	return nil
}

// hasProved reports whether the peer has proved that it knows the secret of an export.
func (a *authenticator) hasProved(name string) bool {
	if a.proved[name] || a.secret == nil || len(a.known) == 0 {
		return a.proved[name]
	}
	secret, _ := a.secret(name)
	return len(secret) > 0 && slices.ContainsFunc(a.known, func(k []byte) bool { return hmac.Equal(k, secret) })
}

// admits reports whether authentication allows the peer to open name.
func (a *authenticator) admits(name string) bool {
	if a.secret == nil || a.hasProved(name) {
		return true
	}
	_, required := a.secret(name)
	return !required
}
