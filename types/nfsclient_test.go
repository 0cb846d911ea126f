package types

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const clientID = "4c4c4544-0047-3510-8057-b7c04f345831"

func TestHasNFSClientID(t *testing.T) {
	for _, c := range []struct {
		name, client, id string
		want             bool
	}{
		{"4.2 → yes", "Linux NFSv4.2 " + clientID + "/longhorn-csi-plugin-b97sm", clientID, true},
		{"4.1 → yes", "Linux NFSv4.1 " + clientID + "/node-1", clientID, true},
		{"a later minor version → yes", "Linux NFSv4.10 " + clientID + "/node-1", clientID, true},
		{"4.0 → yes", "Linux NFSv4.0 node-1/" + clientID + "/10.96.0.17", clientID, true},
		{"4.0 at an IPv6 server → yes", "Linux NFSv4.0 node-1/" + clientID + "/fd00::17", clientID, true},
		{"4.0 with the option migration → yes", "Linux NFSv4.0 " + clientID + "/node-1", clientID, true},
		{"a short identifier of an administrator → yes", "Linux NFSv4.2 node-1/node-1.example", "node-1", true},
		{"an address as host name, after 4.0 → yes", "Linux NFSv4.2 " + clientID + "/10.0.0.7", clientID, true},

		{"no identifier → no", "Linux NFSv4.2 node-1", "node-1", false},
		{"no identifier, 4.0 → no", "Linux NFSv4.0 node-1/10.96.0.17", "node-1", false},
		{"no identifier, 4.0 of old kernels → no", "Linux NFSv4.0 10.0.0.7/10.96.0.17 tcp", "10.0.0.7", false},
		{"a longer identifier → no", "Linux NFSv4.2 node-10/x", "node-1", false},
		{"a shorter identifier → no", "Linux NFSv4.2 node-1/x", "node-10", false},
		{"an identifier that ends so → no", "Linux NFSv4.2 a-node-1/x", "node-1", false},
		{"another case → no", "Linux NFSv4.2 NODE-1/x", "node-1", false},
		{"the identifier as host name → no", "Linux NFSv4.2 other/" + clientID, clientID, false},
		{"the identifier as host name, 4.0 → no", "Linux NFSv4.0 " + clientID + "/other/10.96.0.17", clientID, false},
		{"the identifier as host name, 4.0 without one → no", "Linux NFSv4.0 " + clientID + "/10.96.0.17", clientID, false},
		{"three parts after 4.0 → no", "Linux NFSv4.2 node-1/" + clientID + "/10.96.0.17", clientID, false},
		{"4.0 without a server → no", "Linux NFSv4.0 node-1/" + clientID + "/x", clientID, false},
		{"4.0 without a host name → no", "Linux NFSv4.0 /" + clientID + "/10.96.0.17", clientID, false},
		{"a host name with a slash → no", "Linux NFSv4.2 " + clientID + "/a/b", clientID, false},
		{"no host name → no", "Linux NFSv4.2 " + clientID + "/", clientID, false},
		{"the identifier alone → no", clientID, clientID, false},
		{"something before → no", "x Linux NFSv4.2 " + clientID + "/a", clientID, false},
		{"version 3 → no", "Linux NFSv3 " + clientID + "/a", clientID, false},
		{"no minor version → no", "Linux NFSv4. " + clientID + "/a", clientID, false},
		{"a minor version that is no number → no", "Linux NFSv4.x " + clientID + "/a", clientID, false},
		{"a line feed in the identifier → no", "Linux NFSv4.2 " + clientID + "\n/a", clientID, false},
		{"a zero byte → no", "Linux NFSv4.2 " + clientID + "\x00/a", clientID, false},
		{"two spaces → no", "Linux NFSv4.2  " + clientID + "/a", clientID, false},
		{"nothing → no", "", "", false},
		{"no identifier is asked for → no", "Linux NFSv4.2 /a", "", false},
		{"one with a slash is asked for → no", "Linux NFSv4.2 a/b/c", "a/b", false},
		{"a whole name is asked for → no", "Linux NFSv4.0 a/b c/10.0.0.1", "b c", false},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, HasNFSClientID(c.client, c.id)) })
	}
}

func TestIsNFSClientID(t *testing.T) {
	for text, want := range map[string]bool{
		clientID: true, "a": true, strings.Repeat("x", 63): true, "!~": true,
		"": false, strings.Repeat("x", 64): false, "a b": false, "a/b": false, "a\n": false, "\x7f": false, "é": false,
	} {
		assert.Equal(t, want, IsNFSClientID(text), "%q", text)
	}
}

// The hexadecimal record is one that Ganesha 4.3 wrote.
func TestNFSClientOfRecord(t *testing.T) {
	const digits = "0x4c696e7578204e465376342e322034633463343534342d303030302d313131312d323232322d3333333334343434353535352f6c6f6e67686f726e2d6373692d706c7567696e2d623937736d"
	for _, c := range []struct{ name, record, want string }{
		{"printed", "::ffff:169.254.99.1-(39:Linux NFSv4.2 longhorn-csi-plugin-b97sm)", "Linux NFSv4.2 longhorn-csi-plugin-b97sm"},
		{"with a slash → hexadecimal", "::ffff:127.0.0.1-(154:" + digits + ")", "Linux NFSv4.2 4c4c4544-0000-1111-2222-333344445555/longhorn-csi-plugin-b97sm"},
		{"brackets and colons in it", "169.254.99.1-(9:a-(1:b)c))", "a-(1:b)c)"},
		{"0x and no digits", "169.254.99.1-(4:0xzz)", "0xzz"},
		{"0x alone", "169.254.99.1-(2:0x)", "0x"},
		{"a piece of a longer one → none", "169.254.99.1-(300:" + digits, ""},
		{"another length → none", "169.254.99.1-(38:Linux NFSv4.2 longhorn-csi-plugin-b97sm)", ""},
		{"no address → none", "x-(1:a)", ""},
		{"no length → none", "169.254.99.1-(a)", ""},
		{"something else → none", "node0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := NFSClientOfRecord(c.record)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.want != "", ok)
		})
	}
}
