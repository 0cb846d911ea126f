package disk

import (
	"fmt"
	"io"
	"strings"
)

// uuidAttempts limits the search for a UUID with a fresh prefix.
const uuidAttempts = 20

// uuidPrefixLen is the number of characters that suffice to distinguish the UUIDs of a node's disks at a glance.
// NewUUID tries to keep these characters distinct.
const uuidPrefixLen = 4

// NewUUID draws a version 4 UUID from random. random must be cryptographically strong, because the uniqueness of disks
// in the whole cluster depends on it. NewUUID prefers a UUID with first 4 characters that differ from the first 4
// characters of all known UUIDs. After 20 attempts it accepts any UUID. Its only possible error is an error of random.
func NewUUID(random io.Reader, known []string) (string, error) {
	var uuid string
	for range uuidAttempts {
		var b [16]byte
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return "", fmt.Errorf("generate a disk UUID: %w", err)
		}
		b[6] = b[6]&0x0f | 0x40 // version 4, RFC 9562 section 5.4
		b[8] = b[8]&0x3f | 0x80 // variant, RFC 9562 section 4.1
		uuid = fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
		if !hasPrefixOf(known, uuid[:uuidPrefixLen]) {
			return uuid, nil
		}
	}
	return uuid, nil
}

func hasPrefixOf(known []string, prefix string) bool {
	for _, k := range known {
		if strings.HasPrefix(strings.ToLower(k), prefix) {
			return true
		}
	}
	return false
}
