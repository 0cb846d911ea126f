package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// nodeCount is the number of instance managers, and of the replicas of a volume.
	nodeCount = 3
	// cleanupTimeout bounds the removal of everything.
	cleanupTimeout = 2 * time.Minute
	// namePrefix, followed by the process id, is the name of everything that a run creates outside its processes.
	namePrefix = "lhbench-"
)

// bench is one run, with everything that it has created.
type bench struct {
	opts  options
	dir   string // all files of this run
	nodes []*node
	undo  []func(context.Context) error // in the order of creation
}

// newBench creates the directory and the network. The caller must clean up the result, even if there is an error.
func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{opts: o, dir: filepath.Join(o.dir, fmt.Sprint(namePrefix, os.Getpid()))}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return b, fmt.Errorf("make the working directory: %w", err)
	}
	b.undo = append(b.undo, func(context.Context) error { return os.RemoveAll(b.dir) })
	net := network{prefix: fmt.Sprint(namePrefix, os.Getpid(), "-"), mtu: o.mtu}
	b.undo = append(b.undo, net.remove)
	if err := net.make(ctx); err != nil {
		return b, fmt.Errorf("make the network: %w", err)
	}
	for n := 1; n <= nodeCount; n++ {
		b.nodes = append(b.nodes, &node{number: n, binary: o.binary, namespace: net.node(n), address: nodeAddress(n)})
	}
	return b, nil
}

// cleanup removes everything, in the reverse order of creation.
func (b *bench) cleanup(ctx context.Context) error {
	var errs []error
	for _, n := range b.nodes {
		errs = append(errs, n.stop(ctx))
	}
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i](ctx))
	}
	b.nodes, b.undo = nil, nil
	return errors.Join(errs...)
}

// startNodes starts the instance managers, each with an empty directory named after the measurement.
func (b *bench) startNodes(ctx context.Context, name string) error {
	for _, n := range b.nodes {
		if err := n.start(ctx, filepath.Join(b.dir, fmt.Sprintf("%s-%d", name, n.number))); err != nil {
			return fmt.Errorf("start instance manager %d: %w", n.number, err)
		}
	}
	return nil
}

// stopNodes stops the instance managers and deletes their data from the disk.
func (b *bench) stopNodes(ctx context.Context) error {
	var errs []error
	for _, n := range b.nodes {
		errs = append(errs, n.stop(ctx), os.RemoveAll(n.root))
	}
	return errors.Join(errs...)
}

// settleDisk writes the page cache of earlier runs to the disk, so that it does not slow down the next run.
func (b *bench) settleDisk() error {
	d, err := os.Open(b.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("write out %s: %w", b.dir, err)
	}
	return nil
}

func (b *bench) describeMachine(w io.Writer) {
	var u unix.Utsname
	kernel := "?"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	memory := "?"
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memory = fmt.Sprintf("%.1f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30))
	}
	fmt.Fprintf(w, "%d processors, %s, Linux %s. Load average at the start: %s\n", runtime.NumCPU(), memory, kernel, loadAverage())
}

// loadAverage returns the machine's load average.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// removeStale removes namespaces, their processes, and directories of runs whose process is gone.
func removeStale(ctx context.Context, dir string) error {
	namespaces, err := listNamespaces(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range namespaces {
		if isStale(name) {
			errs = append(errs, removeNamespace(ctx, name))
		}
	}
	entries, err := os.ReadDir(dir)
	errs = append(errs, err)
	for _, e := range entries {
		if isStale(e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// isStale reports whether a name belongs to a run whose process is gone.
func isStale(name string) bool {
	rest, ours := strings.CutPrefix(name, namePrefix)
	if !ours {
		return false
	}
	var pid int
	if _, err := fmt.Sscanf(rest, "%d", &pid); err != nil || pid <= 0 {
		return false
	}
	return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}
