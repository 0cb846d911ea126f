package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/docs"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
)

// TestTheDocumentsManifests: an API server with our definitions and policies accepts every manifest of the pages, and
// the examples.
func TestTheDocumentsManifests(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	pages, err := docs.Pages(apiOnly.options.Root)
	require.NoError(t, err)
	taken := 0
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.Info != docs.Manifest {
				continue
			}
			file := filepath.Join(t.TempDir(), "block.yaml")
			require.NoError(t, os.WriteFile(file, []byte(b.Text), 0o600))
			_, err := c.Kubectl(ctx, "apply", "--dry-run=server", "--validate=strict", "-f", file)
			assert.NoError(t, err, "%s", b)
			taken++
		}
	}
	assert.Greater(t, taken, 5, "the manifests are not found")
	examples, err := filepath.Glob(filepath.Join(apiOnly.options.Root, "deploy/examples/*.yaml"))
	require.NoError(t, err)
	assert.Greater(t, len(examples), 5, "the examples are not found")
	for _, file := range examples {
		_, err := c.Kubectl(ctx, "apply", "--dry-run=server", "--validate=strict", "-f", file)
		assert.NoError(t, err, "%s", file)
	}
}

// TestTheDocumentsCommands follows the pages with nothing but their commands. It starts with an empty cluster and ends
// with an empty cluster.
func TestTheDocumentsCommands(t *testing.T) {
	t.Parallel() // it has its own cluster
	fresh := &shared{options: named("-documents", cluster.Options{
		Nodes:  3,
		Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
	})}
	ctx, c := fresh.get(t, long)
	t.Cleanup(func() {
		assert.NoError(t, fresh.down())
	})
	c.DumpIfFailed(t)
	pages, err := docs.Pages(fresh.options.Root)
	require.NoError(t, err)
	reader := newReader(ctx, t, c, fresh.options)
	for _, life := range docs.Lives {
		ok := t.Run(life.Name, func(t *testing.T) {
			blocks, err := life.Blocks(pages)
			require.NoError(t, err)
			said := reader.follow(ctx, t, life, blocks)
			assert.Contains(t, said, "nothing is left of the installation", "the end of the uninstaller's log")
			checkUninstalled(ctx, t, c)
			if life.Name != docs.Lives[0].Name {
				return
			}
			assert.Contains(t, said, "no problems found", "explain of a volume that is well")
			assert.Contains(t, said, "has 2 of 3 healthy replicas", "explain of a volume that lost a node")
			assert.Contains(t, said, "its kubelet does not answer", "explain of the node that was switched off")
			assert.Contains(t, said, "findings.txt", "what is in the support bundle")
		})
		if !ok {
			return // the next life starts with the state that this one leaves
		}
	}
}

// reader is the user who follows the pages: a shell in its own directory, whose commands reach the cluster.
type reader struct {
	dir     string // contains the repository's deploy directory
	bin     string // the reader's programs; /usr/local/bin in the pages
	kube    string // the kubeconfig
	replace *strings.Replacer
}

// newReader creates the programs that the pages take for granted. devcluster switches a node's power: ssh knows only
// this command.
func newReader(ctx context.Context, t *testing.T, c *cluster.Cluster, o cluster.Options) reader {
	t.Helper()
	r := reader{dir: t.TempDir(), bin: t.TempDir()}
	kube, err := c.Devcluster(ctx, "kubeconfig")
	require.NoError(t, err)
	r.kube = kube
	devcluster := fmt.Sprintf("%s --dir %s --name %s", filepath.Join(o.Root, "bin/devcluster"), o.Dir, o.Name)
	for name, script := range map[string]string{
		"kubectl":     `exec ` + devcluster + ` kubectl "$@"`,
		"helm":        `exec ` + filepath.Join(o.Root, "scripts/helm.sh") + ` "$@"`,
		"ssh":         `test "${*:2}" = "sudo poweroff -f" && exec ` + devcluster + ` stop-node "$1" --power-loss`,
		docs.SwitchOn: `exec ` + devcluster + ` start-node "$1"`,
		"sudo":        `exec "${@/#\/usr\/local\/bin/` + strings.ReplaceAll(r.bin, "/", `\/`) + `}"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(r.bin, name), []byte("#!/bin/bash\n"+script+"\n"), 0o700)) //nolint:gosec // it is run
	}
	require.NoError(t, os.Symlink(filepath.Join(o.Root, "deploy"), filepath.Join(r.dir, "deploy")))
	port := freePort(ctx, t)
	r.replace = strings.NewReplacer(
		"registry.example/longhorn-manager:1.0.0", "localhost/longhorn-manager:dev", "registry.example/longhorn-manager:1.1.0", "localhost/longhorn-manager:dev",
		"registry.example/longhorn-manager", "localhost/longhorn-manager", // the replacer tries the pairs in this order
		"image.tag=1.0.0", "image.tag=dev", "image.tag=1.1.0", "image.tag=dev", "busybox:1.36", "localhost/workload:dev",
		"service/longhorn-backend 9500 ", "service/longhorn-backend "+port+":9500 ", "localhost:9500", "localhost:"+port,
	)
	return r
}

// freePort returns a free port of this machine. Another run may use the port that the pages name.
func freePort(ctx context.Context, t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// timeouts finds the time-outs of kubectl. The test extends them on a machine that is busy with other tests, as in
// package cluster.
var timeouts = regexp.MustCompile(`--timeout=(\d+)m`)

// follow runs the blocks of a life in one shell and stops at the first command that fails. It returns the output of all
// of them.
func (r reader) follow(ctx context.Context, t *testing.T, life docs.Life, blocks []docs.Block) string {
	t.Helper()
	var script strings.Builder
	script.WriteString("set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	for _, b := range blocks {
		text := timeouts.ReplaceAllStringFunc(r.replace.Replace(b.Text), func(flag string) string {
			minutes, err := strconv.Atoi(timeouts.FindStringSubmatch(flag)[1])
			require.NoError(t, err, flag)
			return fmt.Sprintf("--timeout=%dm", 3*minutes)
		})
		if file := b.File(); file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o600))
			continue
		}
		fmt.Fprintf(&script, "echo \"@ %s after $SECONDS s\"\n%s\n%s\n", b, life.ByHand[b.FirstLine()], text)
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PATH="+r.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+r.kube)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	t.Log(said.String())
	require.NoError(t, err, "the block after the last line with @ failed")
	return said.String()
}
