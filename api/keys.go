package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// decodeInput reads the body of an action. It refuses a key that the action does not have. The key may be a typing
// error, and without it the action means something else, such as a detach without the id of a ticket. decodeInput
// ignores the keys that every resource has.
func decodeInput[T any](body []byte) (T, error) {
	value, err := decode[T](body)
	if err != nil {
		return value, err
	}
	known := keysOf(reflect.TypeFor[T]())
	return value, checkKeys(body, "", "is not a field of this action; the fields that can be set are "+strings.Join(known, ", "), known)
}

// decodeResource reads the body of a request that creates or changes a resource. Clients send back whole resources, so
// it ignores the other fields of the resource, whose struct is wire, and the keys in more. It refuses any other key.
// The key may be a typing error, and its author would believe that it has an effect.
func decodeResource[T any](body []byte, wire v1.Object, more ...string) (T, error) {
	value, err := decode[T](body)
	if err != nil {
		return value, err
	}
	settable := keysOf(reflect.TypeFor[T]())
	known := slices.Concat(settable, keysOf(reflect.TypeOf(wire).Elem()), more)
	return value, checkKeys(body, "", "is not a field of this resource; the fields that can be set are "+strings.Join(settable, ", "), known)
}

// checkKeys refuses the first key, in order, of a JSON object that is not among the known keys; prefix is the path of
// the object.
func checkKeys(object []byte, prefix, rule string, known []string) error {
	given, err := decode[map[string]json.RawMessage](object)
	if err != nil {
		return err
	}
	known = append(slices.Clone(known), keysOf(reflect.TypeFor[v1.Resource]())...)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		isThis := func(k string) bool { return strings.EqualFold(k, key) } // as the decoder compares them
		if !slices.ContainsFunc(known, isThis) {
			return &manager.Invalid{Field: prefix + fmt.Sprintf("%.100s", key), Rule: rule}
		}
	}
	return nil
}

// keysOf returns the JSON keys of a struct.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous && key != "" && key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

// lacking are fields of Longhorn's volumes for features that this system does not offer, with the values, as text, that
// request nothing. REST refuses other values. If it ignored them, it would create, for example, a volume that its owner
// believes to be encrypted. StorageClasses have the same fields.
var lacking = func() map[string][]string {
	fields := map[string][]string{"disableFrontend": {"false"}, "topologyRequirement": {"[]"}} // no class has these
	for _, p := range types.ClassParameters {
		if !p.Offered {
			fields[p.Name] = p.Neutral
		}
	}
	for _, settable := range keysOf(reflect.TypeFor[v1.VolumeCreate]()) {
		delete(fields, settable)
	}
	return fields
}()

// formerFields are fields of volumes that earlier releases of Longhorn had, or that only configure a feature that this
// system lacks.
var formerFields = []string{"baseImage", "recurringJobs", "engineImage", "currentEngineImage", "ublkQueueDepth", "ublkNumberOfQueue"}

// checkUnsupported refuses a new volume that requests a feature that this system lacks.
func checkUnsupported(body []byte) error {
	keys, err := decode[map[string]json.RawMessage](body)
	if err != nil {
		return err
	}
	for _, field := range slices.Sorted(maps.Keys(lacking)) {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if !strings.EqualFold(key, field) { // in any case: the decoder ignores the case of keys, too
				continue
			}
			if value := textOf(keys[key]); value != "" && !slices.Contains(lacking[field], value) {
				return &manager.Invalid{Field: field, Value: value, Rule: strings.Join(append([]string{"is not offered; leave it out"}, lacking[field]...), ", or set it to ")}
			}
		}
	}
	return nil
}

// textOf returns a JSON value as a StorageClass has it: a string without quotes, any other value without spaces at its
// ends. Null is "".
func textOf(value json.RawMessage) string {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		text = string(value)
	}
	return strings.TrimSpace(text)
}

// checkDiskKeys refuses keys that a disk in the body of a diskUpdate does not have. Clients send disks back as they
// read them.
func checkDiskKeys(body []byte) error {
	in, err := decode[struct {
		Disks map[string]json.RawMessage `json:"disks"`
	}](body)
	if err != nil {
		return err
	}
	rule := "is not a field of a disk; the fields that can be set are " + strings.Join(keysOf(reflect.TypeFor[v1.DiskUpdate]()), ", ")
	for _, name := range slices.Sorted(maps.Keys(in.Disks)) {
		if err := checkKeys(in.Disks[name], "disks."+name+".", rule, keysOf(reflect.TypeFor[v1.DiskInfo]())); err != nil {
			return err
		}
	}
	return nil
}
