package nbd_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

func proofOf(secret, nonce, name string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("longhorn-nbd-auth-v1" + nonce + name))
	return string(m.Sum(nil)) + name
}

func TestAuthentication(t *testing.T) {
	const auth, policy, ack = 0x4c480001, 1<<31 + 2, 1
	secrets := map[string]string{"one": "secret one", "two": "secret two", "empty": ""}
	x := serving(memory.New(1<<20).Export("one"), memory.New(1<<20).Export("two"), memory.New(1<<20).Export("empty"), memory.New(1<<20).Export("open"))
	_, path := listen(t, x, nbd.ServerOptions{Secret: func(name string) ([]byte, bool) { return []byte(secrets[name]), name != "open" }})
	nonceOf := func(c *rawClient) string {
		rep, nonce := c.option(auth, "")
		require.Equal(c.t, uint32(auth), rep)
		require.Len(c.t, nonce, 32)
		return nonce
	}
	for _, c := range []struct {
		name  string
		prove func(c *rawClient) uint32 // returns the last reply to the authentication option; 0 if none was sent
		reply uint32
		open  string
		want  uint32
	}{
		{"right proof → opened", func(c *rawClient) uint32 { r, _ := c.option(auth, proofOf("secret one", nonceOf(c), "one")); return r }, ack, "one", 3},
		{"no proof → refused", func(*rawClient) uint32 { return 0 }, 0, "one", policy},
		{"no proof for one that wants none → opened", func(*rawClient) uint32 { return 0 }, 0, "open", 3},
		{"wrong secret → refused", func(c *rawClient) uint32 { r, _ := c.option(auth, proofOf("guess", nonceOf(c), "one")); return r }, policy, "one", policy},
		{"another's secret → refused", func(c *rawClient) uint32 { r, _ := c.option(auth, proofOf("secret two", nonceOf(c), "one")); return r }, policy, "one", policy},
		{"right proof of another export → refused", func(c *rawClient) uint32 { r, _ := c.option(auth, proofOf("secret two", nonceOf(c), "two")); return r }, ack, "one", policy},
		{"proof renamed → refused", func(c *rawClient) uint32 {
			r, _ := c.option(auth, proofOf("secret one", nonceOf(c), "one")[:32]+"two")
			return r
		}, policy, "two", policy},
		{"empty secret → never proved", func(c *rawClient) uint32 { r, _ := c.option(auth, proofOf("", nonceOf(c), "empty")); return r }, policy, "empty", policy},
		{"unknown export → refused like a wrong secret", func(c *rawClient) uint32 { r, _ := c.option(auth, proofOf("", nonceOf(c), "none")); return r }, policy, "none", policy},
		{"proof before any nonce → refused", func(c *rawClient) uint32 { r, _ := c.option(auth, proofOf("secret one", "", "one")); return r }, policy, "one", policy},
		{"second proof with the same nonce → refused", func(c *rawClient) uint32 {
			nonce := nonceOf(c)
			c.option(auth, proofOf("guess", nonce, "one"))
			r, _ := c.option(auth, proofOf("secret one", nonce, "one"))
			return r
		}, policy, "one", policy},
		{"proof of a nonce since replaced → refused", func(c *rawClient) uint32 {
			nonce := nonceOf(c)
			nonceOf(c)
			r, _ := c.option(auth, proofOf("secret one", nonce, "one"))
			return r
		}, policy, "one", policy},
		{"proof recorded on another connection → refused", func(c *rawClient) uint32 {
			nonce := nonceOf(rawDial(c.t, path))
			nonceOf(c)
			r, _ := c.option(auth, proofOf("secret one", nonce, "one"))
			return r
		}, policy, "one", policy},
		{"a proof too short to be one → refused", func(c *rawClient) uint32 { nonceOf(c); r, _ := c.option(auth, "short"); return r }, policy, "one", policy},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := rawDial(t, path)
			require.Equal(t, c.reply, c.prove(raw))
			got, _ := raw.option(7, u32(uint32(len(c.open)))+c.open+u16(0))
			assert.Equal(t, c.want, got)
		})
	}
	t.Run("three wrong proofs → cut off", func(t *testing.T) {
		raw := rawDial(t, path)
		for range 3 {
			raw.option(auth, proofOf("guess", nonceOf(raw), "one"))
		}
		raw.expectEnd()
	})
	t.Run("an old style open without proof → cut off", func(t *testing.T) {
		raw := rawDial(t, path)
		raw.write("IHAVEOPT" + u32(1) + u32(3) + "one")
		raw.expectEnd()
	})
}

func TestClientAuthenticates(t *testing.T) {
	x := serving(memory.New(1<<20).Export("vol"), memory.New(1<<20).Export("other"))
	_, path := listen(t, x, nbd.ServerOptions{Secret: func(name string) ([]byte, bool) { return []byte("secret of " + name), true }})
	_, open := listen(t, x, nbd.ServerOptions{})
	var policy *nbd.PolicyError
	var option *nbd.OptionError
	for _, c := range []struct {
		name, path, secret string
		as                 any // nil if the export opened
	}{
		{"right secret → opened, and the exporter knows", path, "secret of vol", nil},
		{"no secret → refused by policy", path, "", &policy},
		{"wrong secret → refused by policy", path, "secret of other", &policy},
		{"a server that does not ask → not trusted", open, "secret of vol", &option},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := nbd.Dial(within(t), "unix", c.path, "vol", nbd.DialOptions{Secret: []byte(c.secret)})
			if c.as == nil {
				require.NoError(t, err)
				_ = client.Close()
				o := x.opens()
				require.Len(t, o, 1)
				assert.True(t, o[0].Authenticated)
			} else {
				assert.ErrorAs(t, err, c.as)
			}
		})
	}
}
