package scripts

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The machine of these tests is amd64 in all rows.
func TestBuildsForAnotherArchitecture(t *testing.T) {
	const compiler = `echo "gcc $*" >>"$FAKES/ran"; while [ $# -gt 1 ]; do [ "$1" != -o ] || echo library >"$2"; shift; done`
	const symbols = `echo "objdump $*" >>"$FAKES/ran"; echo "000 g DF .text 00 GLIBC_${LIBC:-2.17} read"`
	for name, tc := range map[string]struct {
		script  []string
		env     []string
		missing string // a command that is missing
		exit    int
		says    string
		ran     []string
	}{
		"this machine's → all programs in bin": {
			script: []string{"build.sh"}, says: "build: bin/devcluster done",
			ran: []string{
				"gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o bin/ganesha-wake.so share/ganesha/wake/wake.c", "objdump -T bin/ganesha-wake.so",
				"go GOARCH= bin/longhorn-manager", "devcluster bin/devcluster",
			},
		},
		"this machine's, by its name → the same": {
			script: []string{"build.sh", "manager"}, env: []string{"ARCH=amd64"},
			ran: []string{
				"gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o bin/ganesha-wake.so share/ganesha/wake/wake.c", "objdump -T bin/ganesha-wake.so",
				"go GOARCH=amd64 bin/longhorn-manager",
			},
		},
		"another → what its image needs, with its compiler": {
			script: []string{"build.sh"}, env: []string{"ARCH=arm64"}, says: "build: bin/arm64/longhorn-manager done",
			ran: []string{
				"gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o bin/arm64/ganesha-wake.so share/ganesha/wake/wake.c", "objdump -T bin/arm64/ganesha-wake.so",
				"go GOARCH=arm64 bin/arm64/longhorn-manager",
			},
		},
		"another, without its compiler → it says what installs it": {
			script: []string{"build.sh"}, env: []string{"ARCH=arm64"}, missing: "aarch64-linux-gnu-gcc", exit: 1,
			says: "aarch64-linux-gnu-gcc is missing; run ARCH=arm64 scripts/setup",
		},
		"a library for a newer libc than the image's → refused": {
			script: []string{"build.sh"}, env: []string{"ARCH=arm64", "LIBC=2.38"}, exit: 1,
			says: "bin/arm64/ganesha-wake.so needs GLIBC_2.38, and the image has an older libc",
			ran:  []string{"gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o bin/arm64/ganesha-wake.so share/ganesha/wake/wake.c", "objdump -T bin/arm64/ganesha-wake.so"},
		},
		"one that is unknown → refused": {script: []string{"build.sh"}, env: []string{"ARCH=riscv64"}, exit: 2, says: "build: ARCH=riscv64: must be amd64 or arm64"},
		"an image of another that is not built → it says what builds it": {
			script: []string{"image.sh"}, env: []string{"ARCH=arm64"}, exit: 1, says: "bin/arm64/longhorn-manager is missing; run make build ARCH=arm64",
		},
		"an image of this machine's that is not built → it says what builds it": {
			script: []string{"image.sh"}, exit: 1, says: "bin/longhorn-manager is missing; run make build\n",
		},
		"an image of one that is unknown → refused": {script: []string{"image.sh"}, env: []string{"ARCH=arm"}, exit: 2, says: "image: ARCH=arm: must be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands := map[string]string{"uname": "echo x86_64"}
			for _, prefix := range []string{"", "aarch64-linux-gnu-"} {
				commands[prefix+"gcc"], commands[prefix+"objdump"] = compiler, symbols
			}
			r := newRepository(t, []string{"build.sh", "image.sh", "arch.sh"}, map[string]string{
				"scripts/gobuild.sh":  "#!/bin/sh\necho \"go GOARCH=$GOARCH $1\" >>\"$FAKES/ran\"\n",
				"scripts/ui.sh":       "#!/bin/sh\n",
				"devcluster/build.sh": "#!/bin/sh\necho \"devcluster $1\" >>\"$FAKES/ran\"\n",
			}, commands)
			r.env = append(append(r.env, "ARCH="), tc.env...)
			if tc.missing != "" { // this machine may have it: bash reads the file of BASH_ENV first
				r.write("hidden.sh", `command() { [ "$*" != "-v `+tc.missing+`" ] && builtin command "$@"; }`)
				r.env = append(r.env, "BASH_ENV="+r.dir+"/hidden.sh")
			}
			out, err := r.command("scripts/"+tc.script[0], tc.script[1:]...)
			assert.Equal(t, tc.exit, exitCode(t, err), "%s", out)
			assert.Contains(t, out, tc.says)
			assert.Equal(t, tc.ran, r.fake("ran"), "%s", out)
		})
	}
}
