package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ConfigFileName is the name of the UUID file. It lies directly in a disk's directory, which need not be the root of a
// file system.
const ConfigFileName = "longhorn-disk.cfg"

// MaxConfigBytes is the largest UUID file that is read or written.
const MaxConfigBytes = 64 << 10

// StateReady is the only state that is written to a UUID file.
const StateReady = "ready"

// The possible errors of a UUID file. Errors of ParseConfig and of a Record's ConfigErr wrap exactly one of these.
// There is one exception: if the kernel could not read the file, the I/O error is passed on unchanged.
var (
	// ErrConfigMissing says that the file does not exist. On a disk with a recorded UUID, its file system is most
	// likely not mounted.
	ErrConfigMissing = errors.New("the UUID file is missing")
	// ErrConfigTorn says that the content is not one JSON object of the known form. For example, it is empty, cut
	// short, or all zero bytes after a loss of power.
	ErrConfigTorn = errors.New("the UUID file is incomplete or not JSON")
	// ErrConfigNoUUID says that the JSON object has no disk UUID, or an empty one.
	ErrConfigNoUUID = errors.New("the UUID file has no disk UUID")
	// ErrConfigBadUUID says that the disk UUID is not 36 characters of the form 8-4-4-4-12.
	ErrConfigBadUUID = errors.New("the disk UUID in the UUID file is malformed")
	// ErrConfigTooLarge says that the file is longer than MaxConfigBytes.
	ErrConfigTooLarge = errors.New("the UUID file is too large")
	// ErrConfigNotRegular says that the file is a directory, symbolic link, pipe, socket or device.
	ErrConfigNotRegular = errors.New("the UUID file is not a regular file")
)

// Config is the content of a UUID file. UUID identifies the disk; the rest is for information. Name is the disk's name
// at the time when the file was created. A disk that was moved to another node or renamed keeps its file, so Name must
// not be compared.
type Config struct {
	Name   string `json:"diskName"`
	UUID   string `json:"diskUUID"` // lower case
	Driver string `json:"diskDriver"`
	State  string `json:"state"`
	// Claim is the number of the last claim, between 0 (none yet) and MaxClaim; see DecideClaim.
	Claim int64 `json:"claim,omitempty"`
}

// NewConfig returns the content for a new disk.
func NewConfig(name, uuid string) Config {
	return Config{Name: name, UUID: uuid, State: StateReady}
}

// EncodeConfig returns the bytes of a UUID file. It refuses content that ParseConfig would refuse, with the same
// errors.
func EncodeConfig(c Config) ([]byte, error) {
	uuid, err := canonicalUUID(c.UUID)
	if err != nil {
		return nil, fmt.Errorf("encode UUID file: %w", err)
	}
	c.UUID = uuid
	if err := checkClaim(c.Claim); err != nil {
		return nil, fmt.Errorf("encode UUID file: %w", err)
	}

	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("encode UUID file: %w", err)
	}
	if buf.Len() > MaxConfigBytes {
		return nil, fmt.Errorf("encode UUID file of %d bytes: %w", buf.Len(), ErrConfigTooLarge)
	}
	return buf.Bytes(), nil
}

// ParseConfig reads the content of a UUID file. A file with only a disk UUID, as old installations wrote it, is valid.
// Unknown keys are accepted and dropped. Keys are matched exactly, with their case.
func ParseConfig(data []byte) (Config, error) {
	if len(data) > MaxConfigBytes {
		return Config{}, fmt.Errorf("more than %d bytes: %w", MaxConfigBytes, ErrConfigTooLarge)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfigTorn, err)
	}
	if keys == nil { // the JSON value null
		return Config{}, fmt.Errorf("%w: not an object", ErrConfigTorn)
	}

	var c Config
	for _, field := range []struct {
		key    string
		target any
	}{
		{"diskName", &c.Name},
		{"diskDriver", &c.Driver},
		{"state", &c.State},
		{"claim", &c.Claim},
	} {
		raw, ok := keys[field.key]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, field.target); err != nil {
			return Config{}, fmt.Errorf("%w: key %s: %w", ErrConfigTorn, field.key, err)
		}
	}

	if err := checkClaim(c.Claim); err != nil {
		return Config{}, err
	}
	uuid, err := parseUUIDKey(keys["diskUUID"])
	if err != nil {
		return Config{}, err
	}
	c.UUID = uuid
	return c, nil
}

func checkClaim(claim int64) error {
	if claim < 0 || claim > MaxClaim {
		return fmt.Errorf("%w: claim %d is not between 0 and %d", ErrConfigTorn, claim, MaxClaim)
	}
	return nil
}

func parseUUIDKey(raw json.RawMessage) (string, error) {
	if raw == nil {
		return "", ErrConfigNoUUID
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", fmt.Errorf("%w: not a string", ErrConfigBadUUID)
	}
	return canonicalUUID(text)
}

// canonicalUUID returns text in lower case, or the reason why it is not a disk UUID. It accepts any version, because of
// old files. It does not accept the all-zero UUID, because that is most likely a missing initialization.
func canonicalUUID(text string) (string, error) {
	if text == "" {
		return "", ErrConfigNoUUID
	}
	if len(text) != 36 {
		return "", fmt.Errorf("%w: %d characters instead of 36", ErrConfigBadUUID, len(text))
	}
	lower := strings.ToLower(text)
	zero := true
	for i, r := range []byte(lower) {
		isDash := i == 8 || i == 13 || i == 18 || i == 23
		isHex := r >= '0' && r <= '9' || r >= 'a' && r <= 'f'
		if isDash != (r == '-') || !isDash && !isHex {
			return "", fmt.Errorf("%w: unexpected character at position %d", ErrConfigBadUUID, i+1)
		}
		if !isDash && r != '0' {
			zero = false
		}
	}
	if zero {
		return "", fmt.Errorf("%w: all zero", ErrConfigBadUUID)
	}
	return lower, nil
}
