package defaults

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const gib = 1 << 30

// scan is what the node has: two disks of 100 GiB, a directory below one of them, and
// one that the kernel does not show.
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
	if err != nil {
		t.Fatal(err)
	}
	var cases []badCase
	if err := yaml.UnmarshalStrict(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 40 {
		t.Fatalf("%d cases", len(cases))
	}
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
					if err = checkErr; byName != nil {
						t.Errorf("disks %v", byName)
					}
				} else if disks != nil {
					t.Errorf("disks %v with an error", disks)
				}
			case c.Tags != nil:
				var tags []string
				if tags, err = ParseTags(*c.Tags); tags != nil {
					t.Errorf("tags %v", tags)
				}
			}
			expectError(t, err, c.Error)
		})
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error:\n got %v\nwant %s", err, want)
		return
	}
	var typed *Error
	if !errors.As(err, &typed) || typed.Position.Line < 1 || typed.Position.Column < 1 {
		t.Errorf("error %#v has no place", err)
	}
	if len(want) > 1024 {
		t.Errorf("%d bytes do not fit an Event", len(want))
	}
}

func TestBadAnnotationsThatAreLongOrNoText(t *testing.T) {
	many := strings.Repeat(`{"path":"/d"},`, 128)
	for i := range 128 {
		many = strings.Replace(many, `"/d"`, fmt.Sprintf(`"/%d"`, i), 1)
	}
	if disks, err := ParseDisks("[" + strings.TrimSuffix(many, ",") + "]"); err != nil || len(disks) != 128 {
		t.Errorf("128 disks: %d, %v", len(disks), err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"129 disks": {
			"[\n" + many + "\n" + `{"path":"/one-more"}]`,
			"default-disks-config: disk 129, line 3 column 1: is one too many: a node has at most 128 disks",
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
