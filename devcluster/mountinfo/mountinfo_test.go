package mountinfo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		line  string
		want  Mount
		fails bool
	}{
		"shared bind mount → root and target": {
			line: "36 35 98:5 /a /mnt2 rw,noatime shared:3 master:1 - ext4 /dev/vda rw,errors=continue",
			want: Mount{Device: unix.Mkdev(98, 5), Root: "/a", Target: "/mnt2", FSType: "ext4", Source: "/dev/vda", Options: []string{"rw", "errors=continue"}},
		},
		"private mount without optional fields → parsed": {
			line: "36 35 0:22 / /proc rw - proc proc rw",
			want: Mount{Device: unix.Mkdev(0, 22), Root: "/", Target: "/proc", FSType: "proc", Source: "proc", Options: []string{"rw"}},
		},
		"escaped space in the target → space": {
			line: `36 35 0:22 / /a\040b rw - tmpfs tmp\134fs rw`,
			want: Mount{Device: unix.Mkdev(0, 22), Root: "/", Target: "/a b", FSType: "tmpfs", Source: `tmp\fs`, Options: []string{"rw"}},
		},
		"line without dash → error":        {line: "36 35 0:22 / /proc rw proc proc rw", fails: true},
		"bad device number → error":        {line: "36 35 zero / /proc rw - proc proc rw", fails: true},
		"line cut off before dash → error": {line: "36 35 - proc proc", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(strings.NewReader(c.line + "\n"))
			require.Equal(t, c.fails, err != nil, err)
			if !c.fails {
				assert.Equal(t, []Mount{c.want}, got, c.want)
			}
		})
	}
}
