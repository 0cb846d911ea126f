// Command bench measures the data plane alone: three instance managers in three network namespaces that it creates,
// without Kubernetes. An engine on the first node calls its local replica directly, and two others over TCP.
//
// fio loads these targets in turn, and bench prints the medians as a Markdown table, next to the figures that must be
// exceeded:
//
//   - a volume through the unix socket
//   - a second volume through the unix socket, without TLS between the nodes
//   - a third volume through its block device
//   - a plain file on the same disk
//
// Then it measures:
//
//   - how long a flush takes while other writers write much
//   - how much data is sent to a replica that was away
//   - how long writes take during a rebuild
//   - how long a rebuild of scattered data takes, compared with a plain copy
//   - how much memory and processor time idle attached volumes use
//
// It owns the namespaces, the processes, the directory and the presentation of the figures. It plays the role of the
// engine controller: it records the epochs that engines propose. It must know the data plane only by its gRPC service
// and its sockets.
//
// It needs root, ip, nsenter and fio, and the program built without cgo. It removes everything that it created, and
// everything that an earlier, killed run has left.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	binary string         // the program under test
	dir    string         // the parent of the working directory, on the disk to measure
	parts  string         // names of parts, separated by commas
	match  *regexp.Regexp // which cells are measured under load, by "<target>, <pattern>"

	mtu     int           // of the network between the instance managers, in bytes
	runtime time.Duration // of one run of fio
	runs    int           // of which the median counts
	idle    time.Duration // how long idle processes are watched
	volumes int           // idle volumes in the end
	quick   bool          // a trial: figures are not judged
}

// part is a part of the measurements that can run alone. measure prints its figures, and returns those that miss their
// limit.
type part struct {
	name, what string
	isLong     bool // too long for a trial
	measure    func(*bench, context.Context) (missed []string, err error)
}

var parts = []part{
	{"load", "under load", false, (*bench).measureLoad},
	{"flush", "flushes", false, unjudged((*bench).measureFlush)},
	{"away", "the return of a replica", true, unjudged((*bench).measureAway)},
	{"beside", "writes during a rebuild", true, (*bench).measureBeside},
	{"scattered", "a rebuild of scattered data", true, unjudged((*bench).measureScattered)},
	{"idle", "idle volumes", false, unjudged((*bench).measureIdle)},
}

// unjudged wraps a measurement without limits for its figures.
func unjudged(measure func(*bench, context.Context) error) func(*bench, context.Context) ([]string, error) {
	return func(b *bench, ctx context.Context) ([]string, error) { return nil, measure(b, ctx) }
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.binary, "binary", "bin/longhorn-manager", "the program under test")
	f.StringVar(&o.dir, "dir", os.TempDir(), "where the working directory is made; its disk is measured")
	f.StringVar(&o.parts, "parts", strings.Join(partNames(), ","), "what to measure")
	match := f.String("match", "", "measure only cells of the load such as \"unix socket, 4k write QD1\" that match this expression")
	f.IntVar(&o.mtu, "mtu", 1500, "largest packet, in bytes, between the instance managers; 65000 is like a loopback device")
	f.DurationVar(&o.runtime, "runtime", 5*time.Second, "of one run of fio")
	f.IntVar(&o.runs, "runs", 3, "how many runs of each kind; the median counts")
	f.DurationVar(&o.idle, "idle", 30*time.Second, "how long idle processes are watched")
	f.IntVar(&o.volumes, "volumes", 100, "how many idle volumes there are in the end")
	f.BoolVar(&o.quick, "quick", false, "a trial: one run of 1 s each, 5 s idle, 10 volumes; nothing is judged")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.runtime, o.runs, o.idle, o.volumes = time.Second, 1, 5*time.Second, 10
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.mtu < 576 || o.mtu > 65535:
		return o, fmt.Errorf("-mtu %d is not from 576 to 65535", o.mtu)
	case o.runs < 1 || o.runtime < time.Second || o.runtime%time.Second != 0 || o.idle < time.Second || o.volumes < 2:
		return o, errors.New("-runs must be at least 1, -runtime whole seconds, -idle at least 1s, -volumes at least 2")
	}
	for name := range strings.SplitSeq(o.parts, ",") {
		if !slices.Contains(partNames(), name) {
			return o, fmt.Errorf("-parts: %q must be one of %s", name, strings.Join(partNames(), ", "))
		}
	}
	var err error
	if o.match, err = regexp.Compile(*match); err != nil {
		return o, fmt.Errorf("-match: %w", err)
	}
	if o.binary, err = filepath.Abs(o.binary); err == nil {
		o.dir, err = filepath.Abs(o.dir)
	}
	return o, err
}

func (o options) has(part string) bool { return strings.Contains(","+o.parts+",", ","+part+",") }

// run does the requested measurements. In any case it removes everything that it created.
func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("must be root: network namespaces and block devices are made")
	}
	if err := removeStale(ctx, o.dir); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	b, err := newBench(ctx, o)
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, b.cleanup(cleaning))
	}()
	if err != nil {
		return err
	}
	b.describeMachine(os.Stdout)
	var missed []string
	for _, p := range parts {
		if !o.has(p.name) || o.quick && p.isLong {
			continue
		}
		some, err := p.measure(b, ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", p.what, err)
		}
		missed = append(missed, some...)
	}
	fmt.Printf("\nLoad average at the end: %s\n", loadAverage())
	if len(missed) > 0 && !o.quick {
		return fmt.Errorf("not above the floor: %s", strings.Join(missed, "; "))
	}
	return nil
}
