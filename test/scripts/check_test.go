package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository is a git repository on its branch main, with copies of scripts and with fake commands.
type repository struct {
	t   *testing.T
	dir string
	env []string
}

// newRepository copies the named scripts and commits the files. commands are shell scripts in PATH, by name.
func newRepository(t *testing.T, scripts []string, files, commands map[string]string) repository {
	t.Helper()
	r := repository{t: t, dir: filepath.Join(t.TempDir(), "repository")}
	fakes := filepath.Join(filepath.Dir(r.dir), "fakes")
	r.env = append(os.Environ(), "PATH="+fakes+":"+os.Getenv("PATH"), "FAKES="+fakes, "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a")
	require.NoError(t, os.MkdirAll(fakes, 0o700))
	for _, name := range scripts {
		content, err := os.ReadFile(filepath.Join("../../scripts", name))
		require.NoError(t, err)
		r.write(filepath.Join("scripts", name), string(content))
	}
	for name, content := range files {
		r.write(name, content)
	}
	for name, content := range commands {
		require.NoError(t, os.WriteFile(filepath.Join(fakes, name), []byte("#!/usr/bin/env bash\n"+content), 0o700))
	}
	r.git("init", "-q", "-b", "main")
	r.commit()
	return r
}

// write writes an executable file.
func (r repository) write(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(r.t, os.WriteFile(path, []byte(content), 0o700))
}

func (r repository) commit() {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "a commit")
}

func (r repository) git(args ...string) {
	r.t.Helper()
	out, err := r.command("git", args...)
	require.NoError(r.t, err, "git %v: %s", args, out)
}

func (r repository) command(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// fake returns what the fake commands wrote to a file, in lines.
func (r repository) fake(name string) []string {
	content, _ := os.ReadFile(filepath.Join(filepath.Dir(r.dir), "fakes", name))
	return nilIfEmpty(strings.FieldsFunc(string(content), func(c rune) bool { return c == '\n' }))
}

// goOfModule is a fake "go -C MODULE COMMAND...". Its module m has the packages a, b (imports a), c (its tests import b)
// and some packages of tests. Packages without a directory do not exist.
const goOfModule = `
[ "$1" = -C ] || { echo "go $*: without a module"; exit 9; }
cd "$2" || exit 9
path=m; [ "$2" = . ] || path=m/$2
case "$3 $*" in
"list "*" list -m") echo "$path" ;;
"list "*Imports*) [ "$2" = . ] && printf '%s\n' 'm/a m/b' 'fmt m/b' 'm/b m/c' 'm/gone m/c' || true ;;
"list "*) find . -name '*.go' ! -path '*/testdata/*' -printf '%h\n' | sort -u | sed "s#^\.#$path#" ;;
*) echo "CGO_ENABLED=${CGO_ENABLED:-} $2: ${*:3}" >>"$FAKES/ran"; [ "$3" != "$FAILS" ] ;;
esac
`

func TestCheckTestsWhatChanged(t *testing.T) {
	const vet, test = "CGO_ENABLED=0 .: vet -trimpath ", "CGO_ENABLED=0 .: test -short -trimpath "
	edit := func(name string) func(repository) {
		return func(r repository) { r.write(name, "changed") }
	}
	for name, tc := range map[string]struct {
		change func(repository)
		args   []string
		fails  string // the command of go that fails
		ran    []string
		prose  []string
		exit   int
		says   []string
	}{
		"nothing changed → nothing runs": {change: func(repository) {}, says: []string{"0 files differ from"}},
		"a package changed → it and its direct importers are tested": {
			change: edit("a/a.go"), prose: []string{"a/a.go"},
			ran:  []string{vet + "m/a m/test/archtest", test + "m/a m/test/archtest m/b"},
			says: []string{"changed packages: ./a ./test/archtest", "packages that import them: ./b", "nothing wrong"},
		},
		"a package changed that a test imports → that test runs": {
			change: edit("b/b_test.go"), prose: []string{"b/b_test.go"},
			ran: []string{vet + "m/b m/test/archtest", test + "m/b m/test/archtest m/c"},
		},
		"a file is new and unknown to git → it counts": {
			change: edit("c/new.go"), prose: []string{"c/new.go"},
			ran: []string{vet + "m/c m/test/archtest", test + "m/c m/test/archtest"},
		},
		"the branch has a commit, and main another → only the branch's files count": {
			change: func(r repository) {
				r.git("checkout", "-q", "-b", "branch")
				r.write("c/c.go", "changed")
				r.commit()
				r.git("checkout", "-q", "main")
				r.write("a/a.go", "changed")
				r.commit()
				r.git("checkout", "-q", "branch")
			},
			prose: []string{"c/c.go"}, ran: []string{vet + "m/c m/test/archtest", test + "m/c m/test/archtest"},
		},
		"another revision is named → it counts from there": {
			change: func(r repository) {
				edit("a/a.go")(r)
				r.commit()
			},
			args: []string{"HEAD^"}, prose: []string{"a/a.go"},
			ran: []string{vet + "m/a m/test/archtest", test + "m/a m/test/archtest m/b"},
		},
		"a package is deleted → its importers are tested": {
			change: func(r repository) { r.git("rm", "-q", "-r", "gone") },
			ran:    []string{test + "m/c"},
		},
		"a file of testdata → the package above it": {
			change: edit("c/testdata/x/input.go"), prose: []string{"c/testdata/x/input.go"},
			ran: []string{vet + "m/c m/test/archtest", test + "m/c m/test/archtest"},
		},
		"a page → its prose and the tests of pages": {
			change: edit("docs/page.md"), prose: []string{"docs/page.md"},
			ran: []string{vet + "m/test/docs", test + "m/test/docs"},
		},
		"a script → the tests of scripts": {
			change: edit("scripts/new.sh"), ran: []string{vet + "m/test/scripts", test + "m/test/scripts"},
		},
		"generated code → no format, no prose": {
			change: edit("a/zz_generated.go"), ran: []string{vet + "m/a m/test/archtest", test + "m/a m/test/archtest m/b"},
		},
		"a package of another module → with that module's flags": {
			change: edit("devcluster/x/x.go"), prose: []string{"devcluster/x/x.go"},
			ran: []string{
				vet + "m/test/archtest", test + "m/test/archtest",
				"CGO_ENABLED= devcluster: vet m/devcluster/x", "CGO_ENABLED= devcluster: test -short m/devcluster/x",
			},
			says: []string{"module devcluster: changed packages: ./x"},
		},
		"the versions of modules changed → it says who tests that": {
			change: edit("go.mod"), says: []string{"go.mod changed: run make unit, which tests everything"},
		},
		"go vet finds something → the tests run, and the check fails": {
			change: edit("c/c.go"), fails: "vet", prose: []string{"c/c.go"}, exit: 1,
			ran:  []string{vet + "m/c m/test/archtest", test + "m/c m/test/archtest"},
			says: []string{"check: failed: go vet in module ."},
		},
		"a test fails → the check fails": {
			change: edit("docs/page.md"), fails: "test", prose: []string{"docs/page.md"}, exit: 1,
			ran:  []string{vet + "m/test/docs", test + "m/test/docs"},
			says: []string{"check: failed: go test in module ."},
		},
		"the prose is wrong → the check fails": {
			change: func(r repository) { r.write("docs/page.md", "an idiom") }, prose: []string{"docs/page.md"}, exit: 1,
			ran:  []string{vet + "m/test/docs", test + "m/test/docs"},
			says: []string{"check: failed: prose"},
		},
		"a file is not formatted → the check names it and fails": {
			change: func(r repository) { r.write("c/c.go", "unformatted") }, prose: []string{"c/c.go"}, exit: 1,
			ran:  []string{vet + "m/c m/test/archtest", test + "m/c m/test/archtest"},
			says: []string{"run scripts/lint.sh --fix: c/c.go", "check: failed: gofumpt"},
		},
		"there is no such revision → nothing runs": {
			change: edit("a/a.go"), args: []string{"v9"}, exit: 2, says: []string{"none of these revisions exists: v9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{
				".gitignore":       "/bin\n",
				"bin/gofumpt":      "#!/usr/bin/env bash\nshift; grep -l unformatted \"$@\" || true\n",
				"scripts/tool.sh":  "tool() { :; }\n",
				"scripts/prose.sh": "#!/usr/bin/env bash\nprintf '%s\\n' \"$@\" >>\"$FAKES/prose\"; ! grep -q idiom \"$@\"\n",
				"docs/page.md":     "", "go.mod": "", "devcluster/go.mod": "", "devcluster/x/x.go": "",
			}
			for _, dir := range []string{"a", "b", "c", "gone", "test/archtest", "test/docs", "test/scripts"} {
				files[filepath.Join(dir, filepath.Base(dir)+".go")] = ""
			}
			r := newRepository(t, []string{"check.sh"}, files, map[string]string{"go": goOfModule})
			r.env = append(r.env, "FAILS="+tc.fails)
			tc.change(r)
			out, err := r.command("scripts/check.sh", tc.args...)
			assert.Equal(t, tc.exit, exitCode(t, err), "%s", out)
			for _, text := range tc.says {
				assert.Contains(t, out, text)
			}
			assert.Equal(t, tc.ran, r.fake("ran"), "%s", out)
			assert.Equal(t, tc.prose, r.fake("prose"), "%s", out)
		})
	}
}

func TestProseOfNamedFiles(t *testing.T) {
	long := strings.Repeat("word ", 30)
	r := newRepository(t, []string{"prose.sh"}, map[string]string{
		"scripts/tool.sh":       "tool() { :; }\n",
		"tools/prose/later.txt": "# the comments of these directories\nold\n",
		"bin/vale":              "#!/usr/bin/env bash\nprintf '%s\\n' \"${@:5}\" >\"$FAKES/prose\"\n",
		"page.md":               "short\n", "long.md": long + "\n",
		"a/a.go": "", "old/old.go": "", "k8s/client/client.go": "", "a/zz_generated.go": "", "a/a.pb.go": "", "a/a.sh": "",
	}, nil)
	for name, tc := range map[string]struct {
		args, files []string
		says        string
		fail        bool
	}{
		"without a name → all pages and all code that is not generated": {
			files: []string{"long.md", "page.md", "a/a.go"}, fail: true, says: "long.md:1: a line of 150 characters",
		},
		"with names → only these":                  {args: []string{"page.md", "a/a.go", "a/a.sh"}, files: []string{"page.md", "a/a.go"}},
		"a long line in a named page → it fails":   {args: []string{"long.md"}, files: []string{"long.md"}, fail: true, says: "long.md:1"},
		"only code that is exempt → nothing to do": {args: []string{"old/old.go", "a/zz_generated.go"}},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(filepath.Join(filepath.Dir(r.dir), "fakes", "prose"))
			out, err := r.command("scripts/prose.sh", tc.args...)
			assert.Equal(t, tc.fail, err != nil, "%s", out)
			assert.Contains(t, out, tc.says)
			assert.Equal(t, tc.files, r.fake("prose"))
		})
	}
}

// The full run of all tests must not skip what only "make check" may skip.
func TestOnlyCheckRunsShortTests(t *testing.T) {
	scripts, err := filepath.Glob("../../scripts/*")
	require.NoError(t, err)
	scripts = append(scripts, "../../Makefile", "../../.ci/run")
	var short []string
	for _, name := range scripts {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		for line := range strings.Lines(string(content)) {
			command, _, _ := strings.Cut(line, "#")
			for _, word := range strings.Fields(command) {
				if word == "-short" || word == "-test.short" || strings.HasPrefix(word, "-short=") {
					short = append(short, filepath.Base(name)+": "+strings.TrimSpace(command))
				}
			}
		}
	}
	for _, line := range short {
		assert.True(t, strings.HasPrefix(line, "check.sh: "), "%s", line)
	}
	assert.NotEmpty(t, short, "the test finds the command of check.sh")
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit := new(exec.ExitError)
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}
