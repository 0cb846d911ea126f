package types

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// A node's NFS client tells a server its own name. Linux derives the name from an identifier and from the host name
// of the mounting process (for shared volumes, of the CSI plugin's pod):
//
//	Linux NFSv4.2 IDENTIFIER/HOSTNAME              4.1 and later, and 4.0 with the option migration
//	Linux NFSv4.0 HOSTNAME/IDENTIFIER/SERVER       4.0
//	Linux NFSv4.2 HOSTNAME                         without an identifier; 4.0: HOSTNAME/SERVER
//
// NFSClientDirectory is on each node, until the node reboots. There the node's daemon and its CSI plugin exchange the
// identifier. Each writes one file and reads the other's. Either may be of a release that does not.
const (
	NFSClientDirectory = RuntimeDirectory + "/nfs-client"
	// NFSClientWanted is the daemon's file: the identifier to set if none is set.
	NFSClientWanted = "wanted"
	// NFSClientHeld is the plugin's file: the identifier of all clients of shares on this node; empty or missing:
	// unknown.
	NFSClientHeld = "held"
)

// maxNFSClientID is in bytes. The kernel's client truncates longer identifiers.
const maxNFSClientID = 63

// IsNFSClientID reports whether a text can be recognized within a client's name: printable ASCII, without spaces and
// slashes.
func IsNFSClientID(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' || text[i] == '/' {
			return false
		}
	}
	return text != "" && len(text) <= maxNFSClientID
}

// HasNFSClientID reports whether a client with this name has the identifier. The function compares the whole
// identifier, and only at the place where the kernel writes it. It does not compare host names. The name must be the
// one that the client gave; see NFSClientOfRecord.
//
// A client chooses its name, so the name does not prove its identity. A client that can mount a share can use any
// name, and the server then also takes it for the client of that name. A name in any other form than the kernel's has
// no identifier. Examples are a host name with a slash, and clients other than Linux. Kernels between 5.3 and 5.9 may
// have an identifier that their names do not contain.
func HasNFSClientID(name, identifier string) bool {
	if !IsNFSClientID(identifier) {
		return false
	}
	rest, ok := strings.CutPrefix(name, "Linux NFSv4.")
	minor, rest, spaced := strings.Cut(rest, " ")
	if _, err := strconv.ParseUint(minor, 10, 8); !ok || !spaced || err != nil {
		return false
	}
	parts := strings.Split(rest, "/")
	switch {
	case len(parts) == 2 && minor == "0" && isAddress(parts[1]):
		return false // HOSTNAME/SERVER
	case len(parts) == 2:
		return parts[0] == identifier && parts[1] != "" && !strings.Contains(parts[1], " ") // old kernels: ADDRESS/SERVER PROTOCOL
	case len(parts) == 3 && minor == "0":
		return parts[0] != "" && parts[1] == identifier && isAddress(parts[2])
	}
	return false
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

// NFSClientOfRecord returns a client's name, given the name of its record in Ganesha's recovery directory:
// ADDRESS-(LENGTH:NAME). Ganesha writes names with a slash or with unprintable characters as 0x and hexadecimal
// digits. This includes all names with an identifier. LENGTH is the length of the written form. A client that calls
// itself 0x and digits has the same record as a client whose name these digits encode. A record of more than 255
// bytes is split into pieces, and no piece is a name.
func NFSClientOfRecord(record string) (name string, ok bool) {
	address, rest, found := strings.Cut(record, "-(")
	length, rest, colon := strings.Cut(rest, ":")
	text, closed := strings.CutSuffix(rest, ")")
	if n, err := strconv.Atoi(length); !found || !colon || !closed || err != nil || n != len(text) || !isAddress(address) {
		return "", false
	}
	if digits, isHex := strings.CutPrefix(text, "0x"); isHex {
		if decoded, err := hex.DecodeString(digits); err == nil && len(decoded) > 0 {
			return string(decoded), true
		}
	}
	return text, true
}
