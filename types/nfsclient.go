package types

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// A node's NFS client tells a server its own name, which Linux makes of an identifier and of the host name that the process has which mounts (for
// shared volumes, the CSI plugin's pod):
//
//	Linux NFSv4.2 IDENTIFIER/HOSTNAME              4.1 and later, and 4.0 with the option migration
//	Linux NFSv4.0 HOSTNAME/IDENTIFIER/SERVER       4.0
//	Linux NFSv4.2 HOSTNAME                         without an identifier; 4.0: HOSTNAME/SERVER
//
// NFSClientDirectory, on each node and gone with its boot, is where the node's daemon and its CSI plugin speak of the identifier. Each writes one
// file there and reads the other; either may be of a release that does not.
const (
	NFSClientDirectory = RuntimeDirectory + "/nfs-client"
	// NFSClientWanted is the daemon's: the identifier to set where none is set.
	NFSClientWanted = "wanted"
	// NFSClientHeld is the plugin's: the identifier that all clients of shares have on this node; empty or missing: not known.
	NFSClientHeld = "held"
)

// maxNFSClientID is in bytes; the kernel's client cuts off what is longer.
const maxNFSClientID = 63

// IsNFSClientID tells whether a text can be told apart within a client's name: printable ASCII, without spaces and slashes.
func IsNFSClientID(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' || text[i] == '/' {
			return false
		}
	}
	return text != "" && len(text) <= maxNFSClientID
}

// HasNFSClientID tells whether a client of that name has the identifier. The identifier is compared as a whole, and only at the place where the
// kernel writes it; host names are not compared. The name must be that which the client gave; see NFSClientOfRecord.
//
// A client chooses its name, so this is no proof of who it is: who can mount a share can say any name, and is then the client of that name for the
// server, too. A name in any other form than the kernel's has no identifier: neither a host name with a slash, nor clients other than Linux. Kernels
// between 5.3 and 5.9 may have an identifier that their names lack.
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

// NFSClientOfRecord returns a client's name, of the name of its record in Ganesha's recovery directory: ADDRESS-(LENGTH:NAME). Ganesha writes names
// that have a slash or what cannot be printed, so all with an identifier, as 0x and hexadecimal digits, and the length is that of what is written. A
// client that calls itself 0x and digits has the same record as one of the name that these stand for. A record of more than 255 bytes is in pieces,
// of which none is a name.
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
