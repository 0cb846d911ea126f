package openat

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDirStaysBeneathTheRoot: whatever a path consists of, it leads nowhere outside of the root.
func TestDirStaysBeneathTheRoot(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{"data/disk", "etc"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	for name, target := range map[string]string{
		"absolute": "/data", "relative": "data/disk", "up": "../../../../etc", "out": outside, "self": "self",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, name)))
	}
	cases := []struct {
		path string
		want string // beneath root; "" with an error
		err  error
	}{
		{path: "/", want: "."},
		{path: "//data//disk/", want: "data/disk"},
		{path: "/../..", want: "."},
		{path: "/absolute/disk", want: "data/disk"},
		{path: "/relative", want: "data/disk"},
		{path: "/up", want: "etc"},
		{path: "/out", err: unix.ENOENT},
		{path: "/self", err: unix.ELOOP},
		{path: "/file", err: unix.ENOTDIR},
		{path: "/missing", err: unix.ENOENT},
		{path: "data", err: ErrRelative},
		{path: "", err: ErrRelative},
	}
	for _, c := range cases {
		t.Run(c.path, func(t *testing.T) {
			dir, err := Dir(root, c.path)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			defer dir.Close()
			got, err := dir.Stat()
			require.NoError(t, err)
			want, err := os.Stat(filepath.Join(root, c.want))
			require.NoError(t, err)
			assert.True(t, os.SameFile(got, want), "%s led elsewhere than to %s", c.path, c.want)
		})
	}
}

// TestDirRefusesLinksOfTheKernel: a link below /proc leads to an open file of a process, wherever that file is.
func TestDirRefusesLinksOfTheKernel(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	if got, err := Dir("/", filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())))); !errors.Is(err, unix.ELOOP) {
		if err == nil {
			got.Close()
		}
		t.Errorf("error = %v, want ELOOP", err)
	}
}

// TestOpenIsRepeated: a signal, a rename or a mount in between is no reason to fail, and no reason to repeat forever.
func TestOpenIsRepeated(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails []error // the results of the calls in order; then 7 and no error
		err   error
		calls int
	}{
		{"at once → once", nil, nil, 1},
		{"interrupted by a signal → again", []error{unix.EINTR}, nil, 2},
		{"overtaken by a rename → again", []error{unix.EAGAIN, unix.EINTR, unix.EAGAIN}, nil, 4},
		{"overtaken all but the last time → opened", slices.Repeat([]error{unix.EAGAIN}, attempts-1), nil, attempts},
		{"overtaken each time → given up", slices.Repeat([]error{unix.EAGAIN}, attempts), unix.EAGAIN, attempts},
		{"interrupted each time → given up", slices.Repeat([]error{unix.EINTR}, attempts), unix.EINTR, attempts},
		{"any other error → at once", []error{unix.ENOENT}, unix.ENOENT, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			fd, err := repeat(func() (int, error) {
				calls++
				if calls <= len(tc.fails) {
					return -1, tc.fails[calls-1]
				}
				return 7, nil
			})
			assert.Equal(t, tc.calls, calls)
			require.Equal(t, tc.err, err)
			if err == nil {
				assert.Equal(t, 7, fd)
			}
		})
	}
}

// TestStatStaysBeneathTheRoot: an absolute link is resolved beneath the root.
func TestStatStaysBeneathTheRoot(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc", "file"), []byte("four"), 0o600))
	require.NoError(t, os.Symlink("/etc/file", filepath.Join(root, "link")))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(root, "out")))
	for _, path := range []string{"/etc/file", "/link"} {
		st, err := Stat(root, path)
		require.NoError(t, err, path)
		assert.EqualValues(t, 4, st.Size, path)
	}
	for path, want := range map[string]error{"/out": unix.ENOENT, "/nowhere": unix.ENOENT, "etc": ErrRelative} {
		_, err := Stat(root, path)
		require.ErrorIs(t, err, want, path)
	}
}
