package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hangServer has the server's process hang for good in a way that the share manager does not see in the process's state: a control group of version 2
// freezes it. To ps(1) it sleeps, and its sockets accept connections. SIGKILL ends it, as it ends a process that waits for itself.
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

// named are those processes whose command has a name.
func (p processes) named(ctx context.Context, t *testing.T, name string) processes {
	t.Helper()
	return processesOf(ctx, t, p.c, p.node, "grep -lx "+name+" "+"/proc/{"+strings.Join(p.ids, ",")+",}/comm 2>/dev/null | cut -d / -f 3")
}

// freeze has the processes stand still in a control group of their own, which is not the freezer of version 1: SIGKILL ends nothing there. The
// returned function removes the group; what has not ended goes on then.
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
