// Package mountinfo reads the kernel's table of mounts. It only parses; it must not mount or make decisions.
package mountinfo

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is one line of /proc/PID/mountinfo; proc_pid_mountinfo(5) describes the fields.
type Mount struct {
	// Device is the file system's device number, the st_dev of its files.
	Device uint64
	// Root is the path within the file system that is mounted.
	Root    string
	Target  string
	FSType  string
	Source  string
	Options []string // of the file system, not of the mount
}

// Read parses the file, such as /proc/self/mountinfo.
func Read(path string) ([]Mount, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	defer f.Close()
	return parse(f)
}

func parse(r io.Reader) ([]Mount, error) {
	var mounts []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for lines.Scan() {
		m, err := parseLine(lines.Text())
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return mounts, nil
}

// parseLine parses
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// where any number of fields may precede the dash.
func parseLine(line string) (Mount, error) {
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 6 || len(right) < 2 {
		return Mount{}, fmt.Errorf("parse mount %q: fields are missing", line)
	}
	major, minor, ok := strings.Cut(left[2], ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return Mount{}, fmt.Errorf("parse mount %q: bad device number", line)
	}
	m := Mount{
		Device: unix.Mkdev(uint32(ma), uint32(mi)),
		Root:   unescape(left[3]),
		Target: unescape(left[4]),
		FSType: right[0],
		Source: unescape(right[1]),
	}
	if len(right) > 2 {
		m.Options = strings.Split(right[2], ",")
	}
	return m, nil
}

// unescape replaces the octal escapes \040 (space), \011, \012 and \134 by their characters.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
