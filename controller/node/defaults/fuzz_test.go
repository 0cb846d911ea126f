package defaults

import (
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
)

// encode is the annotation from which a Disk would be read.
func encode(t *testing.T, disks []Disk) string {
	t.Helper()
	list := []map[string]any{}
	for _, d := range disks {
		m := map[string]any{
			"path": d.Path, "allowScheduling": d.AllowScheduling, "evictionRequested": d.EvictionRequested,
			"tags": d.Tags, "name": d.Name, "diskType": "filesystem",
		}
		if d.StorageReserved != nil {
			m["storageReserved"] = *d.StorageReserved
		}
		list = append(list, m)
	}
	text, err := json.Marshal(list)
	require.NoError(t, err)
	return string(text)
}

func FuzzParseDisks(f *testing.F) {
	for _, c := range badCases(f) {
		if c.Disks != nil {
			f.Add(*c.Disks)
		}
	}
	f.Add(goodDisks)
	f.Fuzz(func(t *testing.T, text string) {
		disks, err := ParseDisks(text)
		if err != nil {
			refused(t, err, disks == nil)
			return
		}
		if !json.Valid([]byte(text)) || len(disks) > 128 {
			t.Fatalf("%d disks of %q", len(disks), text)
		}
		for _, d := range disks {
			fit := path.IsAbs(d.Path) && path.Clean(d.Path) == d.Path && (d.StorageReserved == nil || *d.StorageReserved >= 0) &&
				!(d.AllowScheduling && d.EvictionRequested)
			if !fit || slices.ContainsFunc(d.Tags, isNoTag) || !slices.IsSorted(d.Tags) {
				t.Fatalf("disk %+v", d)
			}
		}
		again, err := ParseDisks(encode(t, disks))
		if len(encode(t, disks)) > maxBytes {
			return // keys that were omitted are written now
		}
		if err != nil || !reflect.DeepEqual(plain(again), plain(disks)) {
			t.Fatalf("read again: %+v, %v; at first: %+v", plain(again), err, plain(disks))
		}
	})
}

func FuzzParseTags(f *testing.F) {
	for _, c := range badCases(f) {
		if c.Tags != nil {
			f.Add(*c.Tags)
		}
	}
	f.Add(goodTags)
	f.Fuzz(func(t *testing.T, text string) {
		tags, err := ParseTags(text)
		if err != nil {
			refused(t, err, tags == nil)
			return
		}
		if slices.ContainsFunc(tags, isNoTag) || !slices.IsSorted(tags) {
			t.Fatalf("tags %q", tags)
		}
		encoded, err := json.Marshal(tags)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseTags(string(encoded))
		if err != nil || !reflect.DeepEqual(again, tags) {
			t.Fatalf("read again: %q, %v; at first: %q", again, err, tags)
		}
	})
}

func isNoTag(tag string) bool { return len(validation.IsQualifiedName(tag)) > 0 }

// refused checks the properties of every error: typed, with a position, short, and without any other result.
func refused(t *testing.T, err error, nothing bool) {
	t.Helper()
	var typed *Error
	require.ErrorAs(t, err, &typed)
	require.GreaterOrEqual(t, typed.Position.Line, 1)
	require.GreaterOrEqual(t, typed.Position.Column, 1)
	require.NotEmpty(t, typed.Rule)
	require.LessOrEqual(t, len(err.Error()), 1024)
	require.True(t, nothing)
}
