// Package e2e runs the storage manager on real Kubernetes clusters on this machine and checks the promises to users:
// written bytes are on all replicas, pods move, claims are deleted, daemons restart under load, and foreign objects
// stay unchanged.
//
// It needs root, bin/devcluster and dist/*.tar (scripts/test.sh e2e builds them). Without them, and with -short, the
// tests are skipped. Environment:
//
//	LONGHORN_E2E=required  missing parts fail the tests; they are not skipped
//	LONGHORN_E2E=keep      the clusters keep running, and the next run with keep uses them as they are
//	LONGHORN_E2E_NAME=e2e  prefix of the clusters' names, so that two runs can work side by side
//	LONGHORN_E2E_GROUP=everyday,ordinary  only the tests of these groups run; groups_test.go lists the groups
//	LONG_ROUNDS=1          how often the power is lost in each way
//	LONG_SHARE=kills=30,deaths=20   how often a shared volume's server fails in which ways; words: shareseries_test.go
//	LONG_TOGETHER=10                how many shared volumes are served on a node that dies
//	LONG_CLAIMS=50                  how many shared claims are created at once
//	LONG_FILES=100000               how many small files are on a shared volume
//	LONG_OUTAGES=1                  the API server is away for minutes, and so is the leader's node
//
// Each of the last five enables its test. Otherwise the test is skipped: these tests are long, and they measure (lines
// with FIGURES).
package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
)

var (
	mode = os.Getenv("LONGHORN_E2E")
	name = cmp.Or(os.Getenv("LONGHORN_E2E_NAME"), "e2e")
)

// named returns a cluster of this run. kind distinguishes it from the other clusters.
func named(kind string, o cluster.Options) cluster.Options {
	o.Name = name + kind
	o.Dir = "/var/lib/longhorn-devcluster-" + o.Name
	return o
}

// shared is a cluster that the first test which needs it starts.
type shared struct {
	options   cluster.Options
	install   bool
	once      sync.Once
	cluster   *cluster.Cluster
	attempted bool
	missing   error // what the start of the cluster needs and lacks
	err       error
}

var (
	threeNodes = &shared{install: true, options: named("", cluster.Options{
		Nodes:  3,
		Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
	})}
	// guests have their own kernels, disks that can fail in every way, and can really lose their power.
	guests = &shared{install: true, options: named("-guests", cluster.Options{
		Guests: 3,
		Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
	})}
	apiOnly = &shared{options: named("-api", cluster.Options{})}

	// kernels is locked while nodes with their own kernels work. Two such clusters at the same time would use all
	// processors of a machine.
	kernels sync.Mutex
	// hanging is closed when TestGuestsDisksAndNodesHang has its turn. It is nil if that test does not run.
	hanging chan struct{}
)

// turnOfKernels waits until the test may use nodes with their own kernels.
func turnOfKernels(t *testing.T) {
	t.Helper()
	kernels.Lock()
	t.Cleanup(kernels.Unlock)
}

// afterHanging lets TestGuestsDisksAndNodesHang have its turn first. A test that waits for its turn occupies one of the
// places of "go test -parallel", and TestSharedVolume takes minutes longer if it finds fewer free places. The wait is
// bounded, because the other test may have no place yet.
func afterHanging() {
	if hanging == nil {
		return
	}
	select {
	case <-hanging:
	case <-time.After(time.Minute):
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := checkGroups(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := m.Run()
	for _, s := range []*shared{threeNodes, guests, sharing, series, outages, apiOnly} {
		if !s.attempted || mode == "keep" {
			continue
		}
		if err := s.down(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 3 // tells scripts/again.sh that this is no failed test
		}
	}
	os.Exit(code)
}

// get returns the cluster. It skips the test if a cluster cannot be started here, and fails it if the start fails. It
// also skips a test of another group than the one that runs.
func (s *shared) get(t *testing.T, of group) (context.Context, *cluster.Cluster) {
	t.Helper()
	of.declare(t)
	if testing.Short() {
		t.Skip("a cluster takes a minute: not with -short")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	s.once.Do(func() {
		if s.missing = missing(root, s.options.Images); s.missing == nil {
			s.up(root)
		}
	})
	switch {
	case s.missing != nil && mode != "required":
		t.Skip(s.missing)
	case s.missing != nil:
		t.Fatal(s.missing)
	case s.err != nil:
		t.Fatalf("no cluster: %v", s.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Minute)
	t.Cleanup(cancel)
	return ctx, s.cluster
}

func missing(root string, images []string) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: a cluster needs namespaces, mounts and loop devices")
	}
	for _, file := range append([]string{"bin/devcluster"}, images...) {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return fmt.Errorf("%s is missing: run scripts/test.sh e2e, which makes it", file)
		}
	}
	return nil
}

func (s *shared) up(root string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) // other clusters start first
	defer cancel()
	o := s.options
	o.Root, o.Out, o.Reuse = root, os.Stderr, mode == "keep"
	o.Images = nil
	for _, image := range s.options.Images {
		o.Images = append(o.Images, filepath.Join(root, image))
	}
	s.attempted = true
	s.options = o
	if s.cluster, s.err = cluster.Up(ctx, o); s.err == nil && s.install {
		s.err = s.cluster.Install(ctx)
	}
}

func (s *shared) down() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if s.cluster == nil {
		s.cluster = cluster.At(s.options)
	}
	return s.cluster.Down(ctx)
}
