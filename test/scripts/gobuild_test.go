package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goThatBuilds is a fake go. $STALE are the packages to compile, and $LIST_FAILS lets "go list" fail. $BUILD is a script
// that stands for "go build".
const goThatBuilds = `
echo "$*" >>"$FAKES/ran"
case $1 in
list)
	echo "go: downloading example.org/m v1.0.0" >&2
	[ -z "$LIST_FAILS" ] || { echo "go: $LIST_FAILS" >&2; exit 1; }
	printf '%s' "$STALE"
	;;
build)
	echo $$ >"$FAKES/pid"
	eval "$BUILD"
	;;
esac
`

func TestProgressOfABuild(t *testing.T) {
	const compiled = "echo example.org/a >&2; echo example.org/b/v2 >&2; "
	for name, tc := range map[string]struct {
		stale, build, listFails string
		exit                    int
		want                    []string // regular expressions of the lines after the first
		ran                     int
	}{
		"nothing to compile → no progress": {build: "true", ran: 2},
		"half is compiled → it says how long the rest takes": {
			stale: "a\nb\nc\nd\n", build: compiled + "sleep 2.5", ran: 2,
			want: []string{`^build: out: 2 of 4 packages, about \d+ s left$`},
		},
		"all is compiled → it links": {
			stale: "a\nb\n", build: compiled + "sleep 2.5", ran: 2, want: []string{`^build: out: linking$`},
		},
		"nothing is compiled yet → no progress": {stale: "a\nb\n", build: "sleep 2.5", ran: 2},
		"the packages cannot be listed → the reason, without downloads, and no build": {
			listFails: "go.mod is missing", exit: 1, ran: 1, want: []string{`^go: go.mod is missing$`},
		},
		"the build fails → the errors of the compiler, without names of packages": {
			stale: "a\nb\n", build: compiled + "echo '# example.org/b/v2' >&2; echo 'b.go:1:2: undefined: x' >&2; exit 1", exit: 1, ran: 2,
			want: []string{`^# example.org/b/v2$`, `^b.go:1:2: undefined: x$`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t, []string{"gobuild.sh"}, nil, map[string]string{"go": goThatBuilds})
			r.env = append(r.env, "PROGRESS=1", "STALE="+tc.stale, "BUILD="+tc.build, "LIST_FAILS="+tc.listFails)
			out, err := r.command("scripts/gobuild.sh", "out", "-trimpath", "-ldflags", "-s -w")
			assert.Equal(t, tc.exit, exitCode(t, err), "%s", out)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			assert.Equal(t, "build: out: looking for packages to compile, and downloading modules", lines[0])
			for i, want := range tc.want {
				if assert.Greater(t, len(lines), i+1, "%s", out) {
					assert.Regexp(t, want, lines[i+1])
				}
			}
			if len(tc.want) == 0 {
				assert.Len(t, lines, 1, "%s", out)
			}
			commands := []string{
				"list -deps -trimpath -ldflags -s -w -f {{if .Stale}}{{.ImportPath}}{{end}} .",
				"build -v -trimpath -ldflags -s -w -o out .",
			}
			assert.Equal(t, commands[:tc.ran], r.fake("ran"))
		})
	}
}

func TestABuildThatIsInterruptedEnds(t *testing.T) {
	r := newRepository(t, []string{"gobuild.sh"}, nil, map[string]string{"go": goThatBuilds})
	cmd := exec.CommandContext(t.Context(), "scripts/gobuild.sh", "out")
	cmd.Dir = r.dir
	cmd.Env = append(r.env, "STALE=a\n", "BUILD=exec sleep 60", "LIST_FAILS=")
	require.NoError(t, cmd.Start())
	pid := filepath.Join(filepath.Dir(r.dir), "fakes", "pid")
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(pid)
		return err == nil && len(content) > 1
	}, time.Minute, 20*time.Millisecond, "go build runs")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	build := r.fake("pid")[0]
	assert.Eventually(t, func() bool {
		status, err := os.ReadFile(filepath.Join("/proc", build, "cmdline"))
		return err != nil || len(status) == 0
	}, time.Minute, 20*time.Millisecond, "go build (%s) has ended", build)
}
