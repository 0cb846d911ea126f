package mounts

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

var secret = bytes.Repeat([]byte("s"), 32)

// manager is an instance manager: the program itself, in a mount namespace that is a slave of the node's namespace.
type manager struct {
	t testing.TB
	h *host
	*client.Client
	cmd     *exec.Cmd
	unwatch func()

	mu    sync.Mutex
	state *proto.State  // guarded by mu; nil while the process does not run
	news  chan struct{} // guarded by mu; closed when state changes
}

func newManager(h *host) *manager {
	h.t.Helper()
	m := &manager{t: h.t, h: h, news: make(chan struct{})}
	m.start()
	h.t.Cleanup(m.kill)
	return m
}

func (m *manager) file(name string) string { return filepath.Join(m.h.top, "run", name) }

func (m *manager) start() {
	m.t.Helper()
	log, err := os.OpenFile(m.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(m.t, err)
	defer log.Close()
	// unshare becomes the program, so it is the process that must be killed.
	m.cmd = exec.Command("unshare", "--mount", "--propagation", "slave", os.Getenv(namespaceEnv), "instance-manager", "serve", "--node-id", "n",
		"--root", m.h.root, "--data-listen", "127.0.0.1:0", "--grpc-socket", m.file("grpc.sock"), "--tool-socket", m.file("nbd.sock"),
		"--device-dir", m.file("dev"))
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(m.t, m.cmd.Start())
	m.Client, err = client.New(m.file("grpc.sock"))
	require.NoError(m.t, err)
	watching, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { m.WatchStates(watching, m.update) })
	m.unwatch = func() {
		cancel()
		watch.Wait()
	}
	_, err = m.until("an answer", patience, func(s *proto.State) bool { return s != nil })
	require.NoError(m.t, err)
}

// kill kills the process at once.
func (m *manager) kill() {
	if m.cmd == nil {
		return
	}
	m.unwatch()
	_ = m.Client.Close()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
	m.update(nil)
	if m.t.Failed() {
		text, _ := os.ReadFile(m.file("log"))
		m.t.Logf("the log of the instance manager ends with\n%s", text[max(0, len(text)-6000):])
	}
}

func (m *manager) update(s *proto.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	close(m.news)
	m.news = make(chan struct{})
}

// until waits for a state that satisfies ready.
func (m *manager) until(what string, limit time.Duration, ready func(*proto.State) bool) (*proto.State, error) {
	late := time.After(limit)
	for {
		m.mu.Lock()
		s, news := m.state, m.news
		m.mu.Unlock()
		if ready(s) {
			return s, nil
		}
		select {
		case <-news:
		case <-late:
			return nil, fmt.Errorf("no %s within %v; the state is %v", what, limit, s)
		}
	}
}

func replicaOf(s *proto.State, name string) *proto.ReplicaState {
	for _, r := range s.GetReplicas() {
		if r.GetName() == name {
			return r
		}
	}
	return nil
}

// serve starts a replica and fails the test if the replica does not serve.
func (m *manager) serve(s *proto.ReplicaSpec) {
	m.t.Helper()
	require.NoError(m.t, poll("replica "+s.GetName()+" is not served", func() error {
		r, err := m.ReplicaStart(context.Background(), s)
		if err == nil && r.GetPhase() != proto.Phase_PHASE_RUNNING {
			err = fmt.Errorf("%s: %s", r.GetReason(), r.GetMessage())
		}
		return err
	}))
}

func (m *manager) create(s *proto.ReplicaSpec) {
	m.t.Helper()
	_, err := m.ReplicaCreate(context.Background(), s)
	require.NoError(m.t, err)
}

// dial connects to a replica like an engine of a generation.
func (m *manager) dial(s *proto.ReplicaSpec, generation int64) (*nbd.Client, error) {
	info, err := m.Info(context.Background(), &proto.InfoRequest{})
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(info.GetPort())))
	export := fmt.Sprintf("rw/%s/%s/%d/session-%d", s.GetVolume(), s.GetName(), generation, generation)
	return nbd.Dial(context.Background(), "tcp", address, export, nbd.DialOptions{Secret: secret})
}

// reason returns the reason word of a refusal.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
