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
	// nodeCount is how many instance managers there are, and how many replicas a volume has.
	nodeCount = 3
	// cleanupTimeout bounds the removal of everything.
	cleanupTimeout = 2 * time.Minute
	// namePrefix, with the process id after it, names all that a run makes outside its processes.
	namePrefix = "lhbench-"
)

// bench is one run with all that it made.
type bench struct {
	opts  options
	dir   string // all files of this run
	nodes []*node
	undo  []func(context.Context) error // in order of making
}

// newBench makes the directory and the network. The result must be cleaned up, also when there is an error.
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

// cleanup removes all, the last made first.
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

// startNodes starts the instance managers, each with an empty directory named after what is measured.
func (b *bench) startNodes(ctx context.Context, name string) error {
	for _, n := range b.nodes {
		if err := n.start(ctx, filepath.Join(b.dir, fmt.Sprintf("%s-%d", name, n.number))); err != nil {
			return fmt.Errorf("start instance manager %d: %w", n.number, err)
		}
	}
	return nil
}

// stopNodes ends the instance managers and gives the disk their space back.
func (b *bench) stopNodes(ctx context.Context) error {
	var errs []error
	for _, n := range b.nodes {
		errs = append(errs, n.stop(ctx), os.RemoveAll(n.root))
	}
	return errors.Join(errs...)
}

// settleDisk writes out what earlier runs left in the page cache, so that no run pays for another.
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

// loadAverage is what else the machine did.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// removeStale removes namespaces, processes in them, and directories of runs whose process is gone.
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

// isStale says whether a name was given by a run whose process is gone.
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
