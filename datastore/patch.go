package datastore

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// half is the part of an object that one request can write.
type half bool

const (
	notStatus half = false // everything but the status
	status    half = true
)

// patch is the body of a write, and its kind.
type patch struct {
	kind types.PatchType
	body []byte
	// whole is the merge patch that writes whole lists where a JSON patch changes elements of lists. It is nil if the
	// patch itself is a merge patch.
	whole []byte
}

// withWholeLists returns the replacement of a JSON patch that does not fit.
func (p patch) withWholeLists() patch { return patch{kind: types.MergePatchType, body: p.whole} }

// newPatch creates the patch that turns base into obj. Both are versions as this release's types read them. The patch
// names the members that differ, so it does not touch members that these types do not know. It carries base's UID and
// resourceVersion. So the API server refuses it as a conflict if the object is another one, or another version, by now.
//
// It is a JSON merge patch (RFC 7386), which creates the objects on the way to a member if the store lacks them. A
// merge patch can write a list only as a whole. If elements of a list change that might contain unknown members, the
// patch is a JSON patch (RFC 6902), which can change elements of a list.
func newPatch[T Object](base, obj T, part half) (patch, error) {
	before, err := tree(base, part)
	if err != nil {
		return patch{}, err
	}
	after, err := tree(obj, part)
	if err != nil {
		return patch{}, err
	}
	blank, err := tree(reflect.New(reflect.TypeOf(base).Elem()).Interface(), part)
	if err != nil {
		return patch{}, err
	}
	list := changes(nil, before, after, blank)
	uid, version := string(base.GetUID()), base.GetResourceVersion()
	whole, err := json.Marshal(merge(list, uid, version))
	if err != nil || !slices.ContainsFunc(list, change.isInList) {
		return patch{kind: types.MergePatchType, body: whole}, err
	}
	steps, err := json.Marshal(operations(list, uid, version))
	return patch{kind: types.JSONPatchType, body: steps, whole: whole}, err
}

// tree returns the half of an object in the form of JSON, without the fields that the caller must not write.
func tree(obj any, part half) (map[string]any, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil { // integers become int64
		return nil, err
	}
	if part == status {
		return map[string]any{"status": all["status"]}, nil
	}
	for _, key := range []string{"apiVersion", "kind", "status"} {
		delete(all, key)
	}
	metadata, _ := all["metadata"].(map[string]any)
	for _, key := range []string{"uid", "resourceVersion", "managedFields"} {
		delete(metadata, key)
	}
	return all, nil
}

// change is one member that differs. A nil value means that there is none.
type change struct {
	path     []string
	old, new any
}

// changes compares two objects. blank is a new object of the kind. The store may lack an object that equals its
// counterpart in blank: then the change is the whole object.
func changes(path []string, before, after, blank map[string]any) []change {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var list []change
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		c := change{path: append(slices.Clip(path), key), old: before[key], new: after[key]}
		if reflect.DeepEqual(c.old, c.new) {
			continue
		}
		o, wasObject := c.old.(map[string]any)
		n, isObject := c.new.(map[string]any)
		if wasObject && isObject && !reflect.DeepEqual(c.old, blank[key]) {
			b, _ := blank[key].(map[string]any)
			list = append(list, changes(c.path, o, n, b)...)
			continue
		}
		list = append(list, c)
	}
	return list
}

// keyFields distinguish the elements of a list: conditions, references to owners, workloads, points, bases of jobs.
var keyFields = []string{"type", "uid", "podName", "number", "by"}

func (c change) isInList() bool {
	_, _, ok := c.elements()
	return ok
}

// elements returns both sides of a list with elements that stay and that can be distinguished.
func (c change) elements() (before, after elements, ok bool) {
	for _, field := range keyFields {
		before, after := elementsBy(field, c.old), elementsBy(field, c.new)
		if slices.ContainsFunc(after.keys, func(key string) bool { return slices.Contains(before.keys, key) }) {
			return before, after, true
		}
	}
	return elements{}, elements{}, false
}

// elements are the objects of a list by keys that are all different.
type elements struct {
	keys []string
	byID map[string]map[string]any
}

// elementsBy returns the elements of a list by a field. The result is empty if the field does not distinguish them.
func elementsBy(field string, value any) elements {
	list, _ := value.([]any)
	e := elements{byID: map[string]map[string]any{}}
	for _, item := range list {
		object, _ := item.(map[string]any)
		key, ok := keyOf(object[field])
		if !ok || e.byID[key] != nil {
			return elements{}
		}
		e.keys = append(e.keys, key)
		e.byID[key] = object
	}
	return e
}

func keyOf(value any) (string, bool) {
	if number, ok := value.(int64); ok {
		return strconv.FormatInt(number, 10), true
	}
	text, ok := value.(string)
	return text, ok
}

// merge renders changes as a JSON merge patch.
func merge(list []change, uid, version string) map[string]any {
	body := map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": version}}
	for _, c := range list {
		last := len(c.path) - 1
		object := body
		for _, key := range c.path[:last] {
			inner, ok := object[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
				object[key] = inner
			}
			object = inner
		}
		object[c.path[last]] = c.new
	}
	return body
}

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// operations renders changes as a JSON patch. "add" also replaces an existing member. A removed member was read from
// the store, and so exists there.
func operations(list []change, uid, version string) []operation {
	steps := []operation{
		{Op: "add", Path: "/metadata/uid", Value: uid},
		{Op: "add", Path: "/metadata/resourceVersion", Value: version},
	}
	for _, c := range list {
		steps = append(steps, c.operations("")...)
	}
	return steps
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

func (c change) operations(path string) []operation {
	for _, key := range c.path {
		path += "/" + pointer.Replace(key)
	}
	if before, after, ok := c.elements(); ok {
		return elementOperations(path, before, after)
	}
	if c.new == nil {
		return []operation{{Op: "remove", Path: path}}
	}
	return []operation{{Op: "add", Path: path, Value: c.new}}
}

// elementOperations first removes the elements that disappear. Then it builds the list from its start: it moves each
// remaining element to its place and changes it there, and inserts each new element.
func elementOperations(path string, before, after elements) []operation {
	var steps []operation
	at := func(i int) string { return path + "/" + strconv.Itoa(i) }
	now := slices.Clone(before.keys)
	for i, key := range slices.Backward(before.keys) {
		if !slices.Contains(after.keys, key) {
			steps = append(steps, operation{Op: "remove", Path: at(i)})
			now = slices.Delete(now, i, i+1)
		}
	}
	for i, key := range after.keys {
		from := slices.Index(now, key)
		if from < 0 {
			steps = append(steps, operation{Op: "add", Path: at(i), Value: after.byID[key]})
			now = slices.Insert(now, i, key)
			continue
		}
		if from != i {
			steps = append(steps, operation{Op: "move", From: at(from), Path: at(i)})
			now = slices.Insert(slices.Delete(now, from, from+1), i, key)
		}
		for _, c := range changes(nil, before.byID[key], after.byID[key], nil) {
			steps = append(steps, c.operations(at(i))...)
		}
	}
	return steps
}
