package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// filesPerDirectory is the number of small files in a directory.
const filesPerDirectory = 1000

// TestSharedVolumeFiles: pods on two nodes create, stat and delete as many small files as LONG_FILES says. It logs how
// fast they are, and how much memory the share uses. Then it logs the speed of large reads and writes, next to the
// speed of a device of the same kind without a share.
func TestSharedVolumeFiles(t *testing.T) {
	count := numbersOf(t, "LONG_FILES", "files")[0]
	t.Parallel()
	turnOfKernels(t)
	ctx, c := sharing.get(t, long)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Minute+time.Duration(count)*20*time.Millisecond)
	t.Cleanup(cancel)
	c.Must(ctx, t, "delete", "storageclass", "shared-small", "--ignore-not-found")
	// One inode per 4 KiB: small files need as many inodes as blocks.
	require.NoError(t, c.Apply(ctx, strings.Replace(shareClass("shared-small", "ext4"), "parameters: {", `parameters: {mkfsParams: "-i 4096", `, 1)))
	s := newShareOf(ctx, t, c, "e2e-share-files", "shared-small", fmt.Sprintf("%dMi", 384+count/230), idle)
	f := &files{share: s, server: types.ShareManagerPodName(s.volume), directories: (count/filesPerDirectory + 1) / 2}
	t.Logf("FIGURES before: %s", memoryOf(ctx, t, c, f.server))
	f.each(ctx, t, "made", `mkdir -p $d; for ((i = 0; i < 1000; i++)); do echo "$d $i" >$d/$i; done`)
	f.each(ctx, t, "looked at by the other pod", `[ "$(stat -c %s $other/* | grep -c -v '^0$')" = 1000 ]`)
	f.each(ctx, t, "deleted", `rm -r $d`)
	assert.Empty(t, s.exec(ctx, t, "one", "ls /data/many"))
	t.Run("throughput", func(t *testing.T) { s.compare(ctx, t) })
}

// files are many small files on a share. Each of two pods creates half of them.
type files struct {
	*share
	server      string
	directories int // of each pod
}

// steps is how often the memory is read in one pass over all files.
const steps = 10

// atOnce processes 48 directories at a time. A file is durable when it is closed, which takes a while. Files that are
// closed at the same time share a flush.
const atOnce = `
ids=()
for ((n = %d; n < %d; n++)); do
  d=/data/many/%s/$n other=/data/many/%s/$n
  ( %s ) &
  ids+=($!)
  if ((${#ids[@]} == 48)); then for id in "${ids[@]}"; do wait $id; done; ids=(); fi
done
for id in "${ids[@]}"; do wait $id; done
`

// each lets both pods run a script for each of their directories. $d is the directory, and $other is a directory of the
// other pod.
func (f *files) each(ctx context.Context, t *testing.T, done, script string) {
	t.Helper()
	began := time.Now()
	for step := range steps {
		first, end := f.directories*step/steps, f.directories*(step+1)/steps
		if first == end {
			continue
		}
		at := time.Now()
		var both sync.WaitGroup
		failures := make([]error, len(sharers))
		for i, pod := range sharers {
			both.Go(func() {
				_, failures[i] = f.c.Kubectl(ctx, "-n", f.namespace, "exec", pod, "--", "bash", "-ec", fmt.Sprintf(atOnce, first, end, pod, sharers[1-i], script))
			})
		}
		both.Wait()
		for _, err := range failures {
			require.NoError(t, err)
		}
		t.Logf("FIGURES %d files %s, the last at %.0f each second: %s", len(sharers)*end*filesPerDirectory, done,
			float64(len(sharers)*(end-first)*filesPerDirectory)/time.Since(at).Seconds(), memoryOf(ctx, t, f.c, f.server))
	}
	t.Logf("FIGURES %d files were %s in %v", len(sharers)*f.directories*filesPerDirectory, done, time.Since(began).Round(time.Second))
	if done == "deleted" {
		f.exec(ctx, t, "one", "rmdir /data/many/*")
	}
}

// compare does the same reads and writes in three ways: through the share, on a device with the same kernel, and on a
// device with this machine's kernel.
func (s *share) compare(ctx context.Context, t *testing.T) {
	class(ctx, t, s.c, "bare", `{numberOfReplicas: "2"}`)
	targets := []struct{ name, pod, file string }{
		{"through the share, from a node with its own kernel", "one", "--filename=/data/fio"},
		{"on a device there", "guest", "--filename=/dev/data"},
		{"on a device of this machine's kernel", "machine", "--filename=/dev/data"},
	}
	deviceOn(ctx, t, s.c, s.namespace, "guest", "guest-1")
	deviceOn(ctx, t, s.c, s.namespace, "machine", "node-1")
	for _, load := range []struct{ name, options string }{
		{"1 MiB written, 4 at a time", "--rw=write --bs=1M --iodepth=4"},
		{"1 MiB read, 4 at a time", "--rw=read --bs=1M --iodepth=4"},
		{"4 KiB written, one at a time", "--rw=randwrite --bs=4k --iodepth=1"},
		{"4 KiB written, 16 at a time", "--rw=randwrite --bs=4k --iodepth=16"},
		{"4 KiB read, 16 at a time", "--rw=randread --bs=4k --iodepth=16"},
	} {
		for _, target := range targets {
			options := append([]string{
				"--name=load", target.file, "--size=128M", "--ioengine=libaio", "--direct=1", "--fallocate=none",
				"--time_based", "--runtime=8", "--output-format=json",
			}, strings.Fields(load.options)...)
			out := s.c.Must(ctx, t, append([]string{"-n", s.namespace, "exec", target.pod, "--", "fio"}, options...)...)
			iops, bytes := rateOf(t, out)
			t.Logf("FIGURES %s: %.0f a second, %.0f MB/s %s", load.name, iops, bytes/1e6, target.name)
		}
	}
}

// deviceOn runs a pod on a node with a claim of class bare as a device. All its blocks are written once.
func deviceOn(ctx context.Context, t *testing.T, c *cluster.Cluster, ns, name, node string) {
	t.Helper()
	require.NoError(t, c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  storageClassName: bare
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 128Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: %[3]s}
  containers:
    - name: main
      image: localhost/workload:dev
      imagePullPolicy: IfNotPresent
      command: [bash, -ec, "%[4]s"]
      volumeDevices: [{name: data, devicePath: /dev/data}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: %[1]s}
`, name, ns, node, idle)))
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=180s")
	c.Must(ctx, t, "-n", ns, "exec", name, "--", "dd", "if=/dev/urandom", "of=/dev/data", "bs=1M", "count=128", "oflag=direct", "status=none")
}

// rateOf returns the requests and bytes per second that fio reports.
func rateOf(t *testing.T, out string) (iops, bytes float64) {
	t.Helper()
	out = out[max(0, strings.Index(out, "{")):]
	type side struct {
		IOPS  float64 `json:"iops"`
		Bytes float64 `json:"bw_bytes"`
	}
	var report struct {
		Jobs []struct {
			Error       int
			Read, Write side
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report), "fio says %s", out)
	require.Len(t, report.Jobs, 1, "fio says %s", out)
	require.Zero(t, report.Jobs[0].Error, "fio says %s", out)
	job := report.Jobs[0]
	return job.Read.IOPS + job.Write.IOPS, job.Read.Bytes + job.Write.Bytes
}
