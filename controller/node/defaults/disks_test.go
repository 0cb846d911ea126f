package defaults

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func bytes(n int64) *int64 { return &n }

// plain drops the fields that exist only for errors.
func plain(disks []Disk) []Disk {
	var result []Disk
	for _, d := range disks {
		d.element, d.at = "", nil
		result = append(result, d)
	}
	return result
}

func TestAnnotationsOfDisksAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []Disk
	}{
		"an empty list → no disk":          {`[]`, nil},
		"an empty list with blanks around": {" [ ]\n", nil},
		"a path alone → not schedulable, reserve by the setting": {
			`[{"path":"/mnt/a"}]`,
			[]Disk{{Path: "/mnt/a", Tags: []string{}}},
		},
		"every key": {
			`[{"path":"/mnt/a","allowScheduling":false,"evictionRequested":true,"storageReserved":1024,"tags":["ssd"],"name":"fast.1_x-2","diskType":"filesystem","diskDriver":""}]`,
			[]Disk{{Path: "/mnt/a", EvictionRequested: true, StorageReserved: bytes(1024), Tags: []string{"ssd"}, Name: "fast.1_x-2"}},
		},
		"every key empty that may be": {
			`[{"path":"/mnt/a","tags":[],"name":"","diskType":"","diskDriver":""}]`,
			[]Disk{{Path: "/mnt/a", Tags: []string{}}},
		},
		"a reserve of 0 → zero, not the setting": {
			`[{"path":"/mnt/a","storageReserved":0},{"path":"/mnt/b","storageReserved":-0}]`,
			[]Disk{{Path: "/mnt/a", StorageReserved: bytes(0), Tags: []string{}}, {Path: "/mnt/b", StorageReserved: bytes(0), Tags: []string{}}},
		},
		"the largest reserve": {
			`[{"path":"/mnt/a","storageReserved":9223372036854775807}]`,
			[]Disk{{Path: "/mnt/a", StorageReserved: bytes(9223372036854775807), Tags: []string{}}},
		},
		"a path that is not clean → cleaned": {
			`[{"path":"//mnt/x/../a/./"}]`,
			[]Disk{{Path: "/mnt/a", Tags: []string{}}},
		},
		"tags → sorted, without doubles": {
			`[{"path":"/mnt/a","tags":["ssd","example.com/fast","Big","ssd"]}]`,
			[]Disk{{Path: "/mnt/a", Tags: []string{"Big", "example.com/fast", "ssd"}}},
		},
		"disks without names and escapes → the order is kept": {
			"[{\"path\":\"/mnt/b\"},\n{\"path\":\"\\/mnt\\/\\u00e4\"}]",
			[]Disk{{Path: "/mnt/b", Tags: []string{}}, {Path: "/mnt/ä", Tags: []string{}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseDisks(c.text)
			require.NoError(t, err)
			assert.Equal(t, c.want, plain(got))
		})
	}
}

func TestAnnotationsOfTagsAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"an empty list → no tag":           {`[]`, []string{}},
		"two tags → sorted":                {`["storage","fast"]`, []string{"fast", "storage"}},
		"doubles → once":                   {` ["fast" , "fast"] `, []string{"fast"}},
		"a prefix, and 63 characters → ok": {`["example.com/a","` + strings.Repeat("t", 63) + `"]`, []string{"example.com/a", strings.Repeat("t", 63)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTags(c.text)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// The examples are those in the documented test plan, with real paths.
func TestTheDocumentedExamplesAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		disks, tags string
		want        []Disk
		wantTags    []string
	}{
		"the example of the design": {
			disks: `[{"path":"/mnt/disk1","allowScheduling":false},
  {"path":"/mnt/disk2","allowScheduling":false,"storageReserved":1024,"tags":["ssd","fast"]}]`,
			tags: `["fast","storage"]`,
			want: []Disk{
				{Path: "/mnt/disk1", Tags: []string{}},
				{Path: "/mnt/disk2", StorageReserved: bytes(1024), Tags: []string{"fast", "ssd"}},
			},
			wantTags: []string{"fast", "storage"},
		},
		"step 4": {
			disks: `[{"path":"/mnt/a","allowScheduling":false},
          {"path":"/mnt/b","allowScheduling":true,"storageReserved":1024,"tags":["ssd","fast"]}]`,
			tags: `["fast","storage"]`,
			want: []Disk{
				{Path: "/mnt/a", Tags: []string{}},
				{Path: "/mnt/b", AllowScheduling: true, StorageReserved: bytes(1024), Tags: []string{"fast", "ssd"}},
			},
			wantTags: []string{"fast", "storage"},
		},
		"step 8, its bracket restored": {
			disks:    `[{"path":"/mnt/a","allowScheduling":false}]`,
			tags:     `["slow","storage"]`,
			want:     []Disk{{Path: "/mnt/a", Tags: []string{}}},
			wantTags: []string{"slow", "storage"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			disks, err := ParseDisks(c.disks)
			got := plain(disks)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			tags, err := ParseTags(c.tags)
			require.NoError(t, err)
			assert.Equal(t, c.wantTags, tags)
		})
	}
	// Step 7 with its bracket restored is refused only for its path and its tag.
	disks, err := ParseDisks(`[{"path":"/mnt/none","allowScheduling":false}]`)
	require.NoError(t, err)
	_, err = Check(disks, scan, 30)
	expectError(t, err, `default-disks-config: disk 1, key "path", line 1 column 10: "/mnt/none" does not exist on the node`)
}
