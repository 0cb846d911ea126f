package defaults

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// maxDisks is how many disks a node may have, as in the CRD.
const maxDisks = 128

// The keys of a disk.
const (
	keyPath              = "path"
	keyAllowScheduling   = "allowScheduling"
	keyEvictionRequested = "evictionRequested"
	keyStorageReserved   = "storageReserved"
	keyTags              = "tags"
	keyName              = "name"
	keyDiskType          = "diskType"
	keyDiskDriver        = "diskDriver"
)

// Disk is one disk of a default-disks-config annotation.
type Disk struct {
	// Path is absolute and clean.
	Path              string
	AllowScheduling   bool
	EvictionRequested bool
	// StorageReserved in bytes; nil: the percentage of the setting.
	StorageReserved *int64
	// Tags are sorted, without duplicates, and not nil.
	Tags []string
	// Name is empty if the disk gets the name of its file system.
	Name string

	// element and at are for errors. element says which disk of the list it is. at says where the values of its keys
	// start; the entry "" is where the disk starts.
	element string
	at      map[string]Position
}

// ParseDisks reads a default-disks-config annotation: a JSON list of at most 128 disks. The result has the same order.
// An error is an *Error, and in that case no disk is returned.
func ParseDisks(text string) ([]Disk, error) {
	r, err := newReader(disksAnnotation, text)
	if err != nil {
		return nil, err
	}
	v, err := r.next()
	if err != nil {
		return nil, err
	}
	disks := []Disk{}
	err = r.list(v, "", "disks", func(index int) error {
		r.element = fmt.Sprintf("disk %d", index+1)
		v, err := r.next()
		if err != nil {
			return err
		}
		if index == maxDisks {
			return r.errorAt(v.at, "", fmt.Sprintf("exceeds the limit: a node has at most %d disks", maxDisks))
		}
		disk, err := r.disk(v)
		if err != nil {
			return err
		}
		if err := disk.differsFrom(disks); err != nil {
			return err
		}
		disks = append(disks, disk)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return disks, nil
}

// disk reads the disk that starts with v.
func (r *reader) disk(v value) (Disk, error) {
	d := Disk{Tags: []string{}, element: r.element, at: map[string]Position{"": r.position(v.at)}}
	err := r.object(v, func(key value) error {
		name := key.token.(string)
		read, known := members[name]
		if !known {
			return r.errorAt(key.at, name, "is unknown; the keys of a disk are "+knownKeys)
		}
		v, err := read(r, name, &d)
		d.at[name] = r.position(v.at)
		return err
	})
	switch {
	case err != nil:
		return Disk{}, err
	case d.Path == "":
		return Disk{}, d.broken(keyPath, "is missing")
	case d.EvictionRequested && d.AllowScheduling:
		return Disk{}, d.broken(keyEvictionRequested, "must not be true together with allowScheduling")
	}
	return d, nil
}

// knownKeys lists the keys of members, for errors.
const knownKeys = "path, allowScheduling, evictionRequested, storageReserved, tags, name, diskType, diskDriver"

// members has, for each key of a disk, the function that reads its value.
var members = map[string]func(r *reader, key string, d *Disk) (value, error){
	keyPath:            (*reader).path,
	keyStorageReserved: (*reader).storageReserved,
	keyName:            (*reader).name,
	keyAllowScheduling: func(r *reader, key string, d *Disk) (v value, err error) {
		d.AllowScheduling, v, err = r.boolean(key)
		return v, err
	},
	keyEvictionRequested: func(r *reader, key string, d *Disk) (v value, err error) {
		d.EvictionRequested, v, err = r.boolean(key)
		return v, err
	},
	keyTags: func(r *reader, key string, d *Disk) (v value, err error) {
		if v, err = r.next(); err == nil {
			d.Tags, err = r.tags(v, key, func(int) {})
		}
		return v, err
	},
	keyDiskType: func(r *reader, key string, _ *Disk) (value, error) {
		return r.oneOf(key, `must be "filesystem" or empty`, "", string(longhorn.DiskTypeFilesystem))
	},
	keyDiskDriver: func(r *reader, key string, _ *Disk) (value, error) {
		return r.oneOf(key, "must be empty", "")
	},
}

func (r *reader) path(key string, d *Disk) (value, error) {
	text, v, err := r.string(key)
	switch {
	case err != nil:
		return v, err
	case text == "":
		return v, r.errorAt(v.at, key, "must not be empty")
	case strings.ContainsFunc(text, isUnfit):
		return v, r.mismatch(v, key, "must have no control or replacement characters")
	}
	if err := types.CheckDiskPath(text); err != nil {
		return v, r.errorAt(v.at, key, quoted(text)+" "+err.Error())
	}
	d.Path = path.Clean(text)
	return v, nil
}

// isUnfit reports whether a character is not allowed in a path that people must be able to read. That includes half a
// surrogate pair ("\ud800"), which the decoder replaces.
func isUnfit(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError }

func (r *reader) storageReserved(key string, d *Disk) (value, error) {
	v, err := r.next()
	if err != nil {
		return v, err
	}
	number, ok := v.token.(json.Number)
	if !ok {
		return v, r.mismatch(v, key, "must be a whole number of bytes")
	}
	bytes, err := strconv.ParseInt(number.String(), 10, 64)
	switch {
	case strings.ContainsAny(number.String(), ".eE"):
		return v, r.mismatch(v, key, "must be a whole number of bytes")
	case strings.HasPrefix(number.String(), "-") && bytes != 0:
		return v, r.mismatch(v, key, "must not be negative")
	case errors.Is(err, strconv.ErrRange):
		return v, r.mismatch(v, key, "must be at most 9223372036854775807 bytes")
	case err != nil:
		return v, r.mismatch(v, key, "must be a whole number of bytes")
	}
	d.StorageReserved = &bytes
	return v, nil
}

// name accepts only label values, so that the name can be part of paths and identities.
func (r *reader) name(key string, d *Disk) (value, error) {
	text, v, err := r.string(key)
	if err != nil {
		return v, err
	}
	if len(validation.IsValidLabelValue(text)) > 0 {
		return v, r.mismatch(v, key, "must be up to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends")
	}
	d.Name = text
	return v, nil
}

func (r *reader) oneOf(key, rule string, allowed ...string) (value, error) {
	text, v, err := r.string(key)
	if err != nil {
		return v, err
	}
	for _, a := range allowed {
		if text == a {
			return v, nil
		}
	}
	return v, r.mismatch(v, key, rule)
}

// differsFrom compares the disk with the previous disks.
func (d Disk) differsFrom(others []Disk) error {
	for _, other := range others {
		if d.Path == other.Path {
			return d.broken(keyPath, "is also the path of "+other.element+": "+quoted(d.Path))
		}
		if d.Name != "" && d.Name == other.Name {
			return d.broken(keyName, "is also the name of "+other.element+": "+quoted(d.Name))
		}
	}
	return nil
}

// broken is an error about the value of a key, or about the disk if it lacks the key.
func (d Disk) broken(key, rule string) error {
	at, ok := d.at[key]
	if !ok {
		at = d.at[""]
	}
	return &Error{Annotation: disksAnnotation, Element: d.element, Key: key, Position: at, Rule: rule}
}
