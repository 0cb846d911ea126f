package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hangServer makes the server's process hang permanently, in a way that the share manager cannot see in the process's
// state: a control group of version 2 freezes it. ps(1) shows it as sleeping, and its sockets accept connections.
// SIGKILL kills it, as it kills a process that waits for itself.
func (s *shareSeries) hangServer(ctx context.Context, t *testing.T) {
	p := s.processes(ctx, t)
	server := p.named(ctx, t, "ganesha.nfsd")
	require.Len(t, server.ids, 1, "the pod has one server")
	thaw := server.freeze(ctx, t)
	defer thaw()
	s.failsNow()
	s.waitAcked(ctx, t, time.Minute)
	assert.Empty(t, server.left(ctx, t), "the server that hangs was not killed")
}

// named returns the processes whose command has a name.
func (p processes) named(ctx context.Context, t *testing.T, name string) processes {
	t.Helper()
	return processesOf(ctx, t, p.c, p.node, "grep -lx "+name+" "+"/proc/{"+strings.Join(p.ids, ",")+",}/comm 2>/dev/null | cut -d / -f 3")
}

// freeze stops the processes in a control group of version 2 of their own. The freezer of version 1 would not do: there
// SIGKILL kills nothing. The returned function removes the group. Processes that have not exited by then continue.
func (p processes) freeze(ctx context.Context, t *testing.T) (thaw func()) {
	t.Helper()
	const group = `
root=/sys/fs/cgroup
if [ "$(stat -f -c %T $root)" != cgroup2fs ]; then
  root=/run/e2e-cgroup2
  mkdir -p $root
  mountpoint -q $root || mount -t cgroup2 none $root
fi
group=$root/e2e-hang
`
	t.Cleanup(func() {
		_, _ = p.c.OnNode(context.WithoutCancel(ctx), p.node, "bash", "-c", group+"echo 0 >$group/cgroup.freeze")
	})
	p.c.MustOnNode(ctx, t, p.node, "bash", "-ec", group+`
mkdir $group
for p in `+strings.Join(p.ids, " ")+`; do echo $p >$group/cgroup.procs; done
echo 1 >$group/cgroup.freeze
until grep -qx "frozen 1" $group/cgroup.events; do read -r -t 0.05 <> <(:) || true; done
grep -q "^State:.S" /proc/`+p.ids[0]+`/status`)
	return func() {
		p.c.MustOnNode(ctx, t, p.node, "bash", "-ec", group+"echo 0 >$group/cgroup.freeze; rmdir $group")
	}
}
