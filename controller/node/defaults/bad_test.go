package defaults

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const gib = 1 << 30

// scan is the node's content: two disks of 100 GiB, a directory below one of them, and a disk that the kernel does not
// show.
var scan = map[string]Found{
	"/mnt/a":       {Exists: true, Filesystem: 1, FSID: "aa", MaximumBytes: 100 * gib},
	"/mnt/a/below": {Exists: true, Filesystem: 1, FSID: "aa", MaximumBytes: 100 * gib},
	"/mnt/b":       {Exists: true, Filesystem: 2, FSID: "bb", MaximumBytes: 100 * gib},
	"/mnt/broken":  {Exists: true, Err: errors.New("open directory /mnt/broken: input/output error")},
}

type badCase struct {
	Case  string  `json:"case"`
	Disks *string `json:"disks"`
	Tags  *string `json:"tags"`
	Error string  `json:"error"`
}

func badCases(t testing.TB) []badCase {
	t.Helper()
	data, err := os.ReadFile("testdata/bad.yaml")
	require.NoError(t, err)
	var cases []badCase
	require.NoError(t, yaml.UnmarshalStrict(data, &cases))
	require.GreaterOrEqual(t, len(cases), 40)
	return cases
}

func TestABadAnnotationIsRefusedWithKeyAndPosition(t *testing.T) {
	for _, c := range badCases(t) {
		t.Run(c.Case, func(t *testing.T) {
			var err error
			switch {
			case c.Disks != nil:
				var disks []Disk
				if disks, err = ParseDisks(*c.Disks); err == nil {
					byName, checkErr := Check(disks, scan, 30)
					err = checkErr
					assert.Nil(t, byName)
				} else {
					assert.Nil(t, disks, "disks beside an error")
				}
			case c.Tags != nil:
				var tags []string
				tags, err = ParseTags(*c.Tags)
				assert.Nil(t, tags)
			}
			expectError(t, err, c.Error)
		})
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	require.EqualError(t, err, want)
	var typed *Error
	require.ErrorAs(t, err, &typed)
	assert.GreaterOrEqual(t, typed.Position.Line, 1)
	assert.GreaterOrEqual(t, typed.Position.Column, 1)
	assert.LessOrEqual(t, len(want), 1024, "bytes do not fit an Event")
}

func TestBadAnnotationsThatAreLongOrNoText(t *testing.T) {
	many := strings.Repeat(`{"path":"/d"},`, 128)
	for i := range 128 {
		many = strings.Replace(many, `"/d"`, fmt.Sprintf(`"/%d"`, i), 1)
	}
	disks, err := ParseDisks("[" + strings.TrimSuffix(many, ",") + "]")
	require.NoError(t, err)
	assert.Len(t, disks, 128, "128 disks")
	for name, c := range map[string]struct{ text, want string }{
		"129 disks": {
			"[\n" + many + "\n" + `{"path":"/one-more"}]`,
			"default-disks-config: disk 129, line 3 column 1: exceeds the limit: a node has at most 128 disks",
		},
		"more than 64 KiB, though nothing but blanks": {
			"[" + strings.Repeat(" ", 64<<10) + "]",
			"default-disks-config: line 1 column 1: must have at most 65536 bytes, has 65538",
		},
		"a byte that is no character": {
			"[{\"path\":\"/mnt/ä\xff\"}]",
			"default-disks-config: line 1 column 17: is not UTF-8",
		},
		"deeper than anybody would": {
			strings.Repeat("[", 20000),
			"default-disks-config: line 1 column 10001: is not JSON: invalid character '[' exceeded max depth",
		},
		"a path of characters that print long": {
			`[{"path":"/` + strings.Repeat(`\ufff9`, 100) + `"}]`,
			`default-disks-config: disk 1, key "path", line 1 column 10: "/` + strings.Repeat(`\ufff9`, 59) + `…" does not exist on the node`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			disks, err := ParseDisks(c.text)
			if err == nil {
				_, err = Check(disks, nil, 30)
			}
			expectError(t, err, c.want)
		})
	}
}
