package replica

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// Meta is the content of replica.meta. Its zero value is not valid. All numbers on disk are little endian.
//
//	offset  bytes
//	0       8      magic "LHREPLIC"
//	8       4      format version: 1, or 2 if layers is not 0
//	12      4      n, length of the payload, at most 64 KiB
//	16      n      payload: this struct as JSON, keys as below, no others, growsTo and layers only while they are not
//	               0; then blanks, so that the file has 4096 bytes if that is enough, else a multiple of it
//	16+n    4      CRC32C of everything before
//	20+n           end of the file
type Meta struct {
	UID         string `json:"uid"`
	Volume      string `json:"volume"`
	Name        string `json:"name"`
	SizeBytes   int64  `json:"sizeBytes"`
	RegionBytes int64  `json:"regionBytes"`
	// Generation and Session hold the gate: the last engine that was admitted. They are zero and "" if no engine ever
	// was.
	Generation int64  `json:"generation"`
	Session    string `json:"session"`
	// Epoch is evidence of which replicas held every acknowledged write; the authoritative copy is in the API object.
	Epoch membership.Epoch `json:"epoch"`
	// Rebuilding means that the data is being replaced from another replica, so nothing may be concluded from it. It is
	// set before the first byte is replaced. It is cleared together with the record of an epoch that lists this
	// replica.
	Rebuilding bool `json:"rebuilding"`
	// BootID identifies the boot during which all writes happened that may not be durable. It is "" while some of these
	// writes may be missing, as after an error of the disk or a loss of power.
	BootID string `json:"bootID"`
	// Clean means that the replica was closed in order: all data is durable and no region was marked.
	Clean bool `json:"clean"`
	// GrowsTo is above 0 while the files are being lengthened (grow.go). Data and intent map then have the length for
	// SizeBytes or the length for GrowsTo. No engine was offered more than SizeBytes. Releases that do not know growth
	// report such metadata as torn.
	GrowsTo int64 `json:"growsTo,omitempty"`
	// Layers is above 0 in format 2: the data is a chain of layers, and its list has this generation or a later one. In
	// format 1 the data is one file.
	Layers int64 `json:"layers,omitempty"`
}

const (
	metaMagic       = "LHREPLIC"
	metaVersion     = 1 // the data is one file
	metaLayered     = 2 // the data is a chain of layers
	metaHeaderBytes = 16
	maxMetaPayload  = 64 << 10
	maxMetaBytes    = metaHeaderBytes + maxMetaPayload + 4
	// metaBlockBytes is the unit of the file's size. With three members some 700 bytes are used. So all metadata of a
	// replica has one size, and the spare file fits.
	metaBlockBytes  = 4096
	maxSessionBytes = 256
	maxBootIDBytes  = 128
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// These errors say why a file's content was not accepted.
var (
	errNotOurs    = errors.New("the file does not start with the marker of its format")
	errTorn       = errors.New("the file is damaged or truncated")
	errNewVersion = errors.New("unknown format version")
)

func (m Meta) spec() Spec {
	return Spec{UID: m.UID, Volume: m.Volume, Name: m.Name, SizeBytes: m.SizeBytes}
}

// version is the format version of the replica.
func (m Meta) version() uint32 {
	if m.Layers > 0 {
		return metaLayered
	}
	return metaVersion
}

func (m Meta) validate() error {
	if err := m.spec().validate(); err != nil {
		return err
	}
	switch {
	case m.RegionBytes < minRegionBytes || m.RegionBytes&(m.RegionBytes-1) != 0 || regionCount(m.SizeBytes, m.RegionBytes) > maxRegions:
		return fmt.Errorf("region size %d is not valid for size %d", m.RegionBytes, m.SizeBytes)
	case m.GrowsTo != 0 && checkGrowth(m.SizeBytes, m.RegionBytes, m.GrowsTo) != nil:
		return fmt.Errorf("size %d cannot grow to %d", m.SizeBytes, m.GrowsTo)
	case m.Generation < 0 || (m.Generation == 0) != (m.Session == ""):
		return fmt.Errorf("generation %d and session %q do not match: both or neither must be set", m.Generation, m.Session)
	case m.Layers < 0:
		return fmt.Errorf("generation %d of the list of layers is not valid", m.Layers)
	case len(m.Session) > maxSessionBytes || len(m.BootID) > maxBootIDBytes:
		return errors.New("the session or the boot ID is too long")
	}
	return validateEpoch(m.Epoch, m.Generation)
}

// validateEpoch checks that an engine of the given generation or a lower one can have recorded e.
func validateEpoch(e membership.Epoch, generation int64) error {
	switch {
	case e.IsZero() && len(e.Members) == 0:
		return nil
	case e.Generation < 1 || e.Counter < 1 || e.Generation > generation:
		return fmt.Errorf("epoch %s is not valid for generation %d", e, generation)
	case len(e.Members) == 0 || !slices.Equal(e.Members, membership.NewEpoch(0, 0, e.Members).Members):
		return fmt.Errorf("epoch %s: the members must have names, be sorted, and occur only once", e)
	}
	return nil
}

func (m Meta) encode() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("encode the metadata: %w", err)
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the metadata: %w", err)
	}
	if len(payload) > maxMetaPayload {
		return nil, fmt.Errorf("encode the metadata: %d bytes exceed the maximum of %d", len(payload), maxMetaPayload)
	}
	payload = padMeta(payload)
	b := make([]byte, 0, metaHeaderBytes+len(payload)+4)
	b = append(b, metaMagic...)
	b = binary.LittleEndian.AppendUint32(b, m.version())
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// padMeta adds the blanks, which every release of the format ignores.
func padMeta(payload []byte) []byte {
	used := (metaHeaderBytes + len(payload) + 4) % metaBlockBytes
	if used == 0 || len(payload)+metaBlockBytes-used > maxMetaPayload {
		return payload
	}
	return append(payload, bytes.Repeat([]byte{' '}, metaBlockBytes-used)...)
}

// decodeMeta reads the content of replica.meta. Errors wrap errNotOurs, errTorn or errNewVersion. It checks the version
// before the checksum, because another version may have its checksum at another place.
func decodeMeta(b []byte) (Meta, error) {
	switch {
	case len(b) < len(metaMagic) || string(b[:len(metaMagic)]) != metaMagic:
		return Meta{}, errNotOurs
	case len(b) < metaHeaderBytes+4:
		return Meta{}, fmt.Errorf("%w: it has %d bytes", errTorn, len(b))
	}
	version := binary.LittleEndian.Uint32(b[8:])
	if version != metaVersion && version != metaLayered {
		return Meta{}, fmt.Errorf("%w: %d, this release knows versions %d and %d", errNewVersion, version, metaVersion, metaLayered)
	}
	n := int64(binary.LittleEndian.Uint32(b[12:]))
	if int64(len(b)) != metaHeaderBytes+n+4 || n > maxMetaPayload {
		return Meta{}, fmt.Errorf("%w: it has %d bytes with a payload of %d bytes", errTorn, len(b), n)
	}
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return Meta{}, fmt.Errorf("%w: wrong checksum", errTorn)
	}
	var m Meta
	d := json.NewDecoder(bytes.NewReader(b[metaHeaderBytes:end]))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Meta{}, fmt.Errorf("%w: %w", errTorn, err)
	}
	if err := m.validate(); err != nil {
		return Meta{}, fmt.Errorf("%w: %w", errTorn, err)
	}
	if m.version() != version {
		return Meta{}, fmt.Errorf("%w: format version %d with generation %d of a list of layers", errTorn, version, m.Layers)
	}
	return m, nil
}
