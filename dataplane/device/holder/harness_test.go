package holder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// The test binary is also the holder and the serving process. roleEnv selects the role, and dirEnv names the directory
// of the test's files.
const (
	roleEnv = "HOLDER_TEST_ROLE"
	dirEnv  = "HOLDER_TEST_DIR"

	// nbdEnv is the environment variable that makes the tests use NBD devices.
	nbdEnv = "LONGHORN_TEST_NBD"
	// onlyFUSE is a file in a rig's directory. With it, a holder creates FUSE devices despite nbdEnv.
	onlyFUSE = "only-fuse"

	volume  = "vol-1"
	volSize = 64 << 20
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		os.Exit(0)
	}
	switch os.Getenv(roleEnv) {
	case "holder":
		os.Exit(runHolder(os.Getenv(dirEnv)))
	case "serve":
		os.Exit(runServing(os.Getenv(dirEnv)))
	}
	os.Exit(m.Run())
}

// runHolder runs a holder. Its serving processes are this binary.
func runHolder(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := os.Setenv(roleEnv, "serve"); err != nil {
		return 99
	}
	log := logrus.New()
	log.SetOutput(os.Stderr)
	err := Run(ctx, Options{
		Command: []string{filepath.Join(dir, "program")}, Version: "one",
		Devices:       devicesIn(filepath.Join(dir, "devices")),
		ControlSocket: filepath.Join(dir, "control.sock"), Dir: filepath.Join(dir, "programs"), Check: []string{"check"}, Log: logrus.NewEntry(log),
		limits: limits{ready: 2 * time.Second, leave: 5 * time.Second, stuck: time.Second, deaths: 1000, backoff: time.Millisecond},
	})
	var exit *ExitError
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case err != nil:
		log.Error(err)
		return 98
	}
	return 0
}

// devicesIn returns options for devices in dir. Their kind is the one that nbdEnv selects.
func devicesIn(dir string) device.Options {
	opts := device.Options{DeviceDir: dir, NoNBD: "a test", Node: "test"}
	if os.Getenv(nbdEnv) != "" {
		link, err := kernel.Open("")
		if err != nil {
			panic(err)
		}
		opts.NBD, opts.NoNBD = link, ""
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), onlyFUSE)); err == nil {
			opts.NoNBD = "the test asks for FUSE"
		}
	}
	return opts
}

// runServing serves the volume from the test's disk. Files in dir make it die at a step, once.
func runServing(dir string) int {
	c, err := Connect()
	if err != nil {
		return 1
	}
	go func() {
		<-c.Ended()
		os.Exit(3)
	}()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	ctx := context.Background()
	disk, err := nbd.Dial(ctx, "unix", filepath.Join(dir, "disk.sock"), volume, nbd.DialOptions{})
	if err != nil {
		return 4
	}
	held, err := c.List(ctx)
	if err != nil {
		return 5
	}
	owner := device.Owner{Engine: "e", Generation: 1, Session: fmt.Sprint(os.Getpid())}
	predecessor := ""
	for _, h := range held {
		owner.Generation, predecessor = h.Owner.Generation+1, h.Owner.Session
	}
	dieAt(dir, "start")
	f := device.NewFrontend(device.FrontendOptions{Keeper: mortal{Client: c, dir: dir}, Owner: owner, Predecessor: predecessor})
	if _, err := f.Start(ctx, volume, volSize, disk); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 6
	}
	if err := c.Ready(""); err != nil {
		return 7
	}
	if exists(dir, "write-own-device") {
		go func() { _ = writeOwnDevice(dir) }()
	}
	if exists(dir, "write-own-device-aside") {
		go writeAside(dir, c.Mounts())
	}
	select {
	case <-c.Leaving():
		err = f.Leave(ctx)
	case <-term:
		err = f.Stop(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 8
	}
	return 0
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// dieAt kills this process if the test has requested its death at a step, once.
func dieAt(dir, step string) {
	if os.Remove(filepath.Join(dir, "die-"+step)) == nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// mortal is a holder's client that dies before, in the middle of, and after each operation.
type mortal struct {
	*Client
	dir string
}

func (m mortal) around(op string) (after func()) {
	dieAt(m.dir, "before-"+op)
	if os.Remove(filepath.Join(m.dir, "die-during-"+op)) == nil {
		go func() { // the request is on its way, has arrived, or is being answered
			time.Sleep(time.Duration(os.Getpid()%8) * 100 * time.Microsecond)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
	}
	return func() { dieAt(m.dir, "after-"+op) }
}

func (m mortal) Attach(ctx context.Context, spec device.Spec, conn, file int) (device.Held, error) {
	defer m.around("attach")()
	return m.Client.Attach(ctx, spec, conn, file)
}

func (m mortal) Adopt(ctx context.Context, volume string, owner device.Owner) (int, device.Held, error) {
	defer m.around("adopt")()
	return m.Client.Adopt(ctx, volume, owner)
}

func (m mortal) Detach(ctx context.Context, volume string, owner device.Owner) error {
	defer m.around("detach")()
	return m.Client.Detach(ctx, volume, owner)
}

// writeOwnDevice does what a serving process must never do: one of its threads waits for an answer of the process
// itself.
func writeOwnDevice(dir string) error {
	fd, err := unix.Open(filepath.Join(dir, "devices", volume), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	_, err = unix.Pwrite(fd, p, 0)
	return err
}

// writeAside writes to the device in the way of a serving process with a disk on its own device.
func writeAside(dir, mounts string) {
	t, err := thread.New(thread.Options{Name: thread.Aside, Mounts: mounts})
	if err == nil {
		err = t.Do(func() error { return writeOwnDevice(dir) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "aside:", err)
		os.Exit(9)
	}
}

// disk is the volume's data, which outlives the processes under test. Like a replica, it admits one writer: it refuses
// the requests that still arrive on an earlier connection.
type disk struct {
	*memory.Backend
	mu     sync.RWMutex  // held for writing while a writer is admitted
	writer int           // guarded by mu
	paused chan struct{} // guarded by mu; nil, or a channel that is closed when the disk continues
}

func (d *disk) List(context.Context) []string { return nil }

func (d *disk) Open(context.Context, string, nbd.ConnInfo) (*nbd.Export, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writer++
	return &nbd.Export{Name: volume, Size: volSize, Backend: &diskConn{disk: d, number: d.writer, Backend: d.Backend}}, nil
}

// pause delays requests until the returned function is called.
func (d *disk) pause() (resume func()) {
	c := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = c
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.paused == c {
			d.paused = nil
			close(c)
		}
	}
}

type diskConn struct {
	*memory.Backend
	disk   *disk
	number int
}

func (c *diskConn) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	c.disk.mu.RLock()
	paused := c.disk.paused
	c.disk.mu.RUnlock()
	if paused != nil {
		<-paused
	}
	c.disk.mu.RLock()
	defer c.disk.mu.RUnlock()
	if c.number != c.disk.writer {
		return nbd.ESHUTDOWN
	}
	return c.Backend.WriteAt(ctx, p, off, fua)
}

// rig is a disk, and a holder in a separate process.
type rig struct {
	t      *testing.T
	dir    string
	disk   *disk
	holder *exec.Cmd
	ended  chan error

	mu    sync.Mutex
	conns map[uint32]bool // guarded by mu; FUSE connections that the test has seen
}

func newRig(t *testing.T, die ...string) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making block devices needs root")
	}
	for _, path := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("making block devices needs %s", path)
		}
	}
	dir, err := os.MkdirTemp("", "holder")
	require.NoError(t, err)
	r := &rig{t: t, dir: dir, disk: &disk{Backend: memory.New(volSize)}, conns: map[uint32]bool{}}
	l, err := net.Listen("unix", filepath.Join(dir, "disk.sock"))
	require.NoError(t, err)
	s := nbd.NewServer(r.disk, nbd.ServerOptions{})
	go func() { _ = s.Serve(context.Background(), l) }()
	// The executable of the holder, which starts it.
	require.NoError(t, os.Symlink("/proc/self/exe", filepath.Join(dir, "program")))
	for _, d := range die {
		r.flag(d)
	}
	r.start()
	// Users of a device that no process serves cannot be killed. The test itself is one of them, so the end of the test
	// would not free them.
	patience := time.AfterFunc(rigPatience(), func() {
		t.Error("the test takes too long: its devices are aborted")
		r.abortAll()
	})
	t.Cleanup(func() {
		patience.Stop()
		r.kill()
		_ = s.Shutdown(context.Background())
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *rig) flag(name string) {
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, name), nil, 0o600))
}

func (r *rig) start() {
	r.holder = exec.Command(os.Args[0])
	r.holder.Env = append(os.Environ(), roleEnv+"=holder", dirEnv+"="+r.dir)
	r.holder.Stderr = &logWriter{t: r.t}
	// If the test is killed from outside, it leaves nothing behind that users of a device would wait for.
	r.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(r.t, r.holder.Start())
	r.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(r.holder, r.ended)
}

// kill kills holder and serving process at once, if they run.
func (r *rig) kill() {
	s, err := Query(context.Background(), r.control())
	_ = r.holder.Process.Kill()
	if err == nil && s.PID > 0 {
		_ = syscall.Kill(s.PID, syscall.SIGKILL)
	}
	r.awaitEnd()
}

// awaitEnd waits until the holder has exited. It frees a holder that hangs in a device, so that nothing of a failed
// test is left.
func (r *rig) awaitEnd() {
	r.t.Helper()
	for {
		select {
		case err := <-r.ended:
			r.ended <- err
			return
		case <-time.After(20 * time.Second):
			r.t.Error("the holder does not end")
		}
		r.abortAll()
	}
}

func (r *rig) abortAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for number := range r.conns {
		assert.NoError(r.t, fuse.Abort(number))
	}
}

// rigPatience is how long a test with a rig may take. On a busy machine, programs in a guest run at a hundredth of
// their speed.
func rigPatience() time.Duration { return 5*time.Minute + time.Duration(successions())*5*time.Second }

// terminate stops the holder in order and returns its exit status.
func (r *rig) terminate() error {
	require.NoError(r.t, r.holder.Process.Signal(syscall.SIGTERM))
	err := <-r.ended
	r.ended <- err
	return err
}

func (r *rig) control() string { return filepath.Join(r.dir, "control.sock") }
func (r *rig) path() string    { return filepath.Join(r.dir, "devices", volume) }

// until waits for a status.
func (r *rig) until(what string, ok func(s Status) bool) Status {
	r.t.Helper()
	var s Status
	var err error
	for range 2000 {
		if s, err = Query(r.t.Context(), r.control()); err == nil && ok(s) {
			return s
		}
		time.Sleep(10 * time.Millisecond) // there is no event to wait for
	}
	r.t.Fatalf("%s did not come: %+v, %v", what, s, err)
	return s
}

// serving waits until a process with another pid serves.
func (r *rig) serving(not int) Status {
	r.t.Helper()
	s := r.until("a serving process", func(s Status) bool {
		return s.Ready && s.PID != not && len(s.Devices) == 1 && s.Devices[0].Served
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[s.Devices[0].Connection] = true
	return s
}

// expectNothingLeft waits until the loop device has cleared itself. It also checks whether the node exists.
func (r *rig) expectNothingLeft(h device.Held, node bool) {
	r.t.Helper()
	_, err := os.Lstat(h.Path)
	assert.Equal(r.t, err == nil, node, "the node: %v", err)
	for range 500 {
		if !isConfigured(r.t, h) {
			return
		}
		time.Sleep(10 * time.Millisecond) // the kernel has nothing to wait on
	}
	r.t.Errorf("%s is left", h.Loop)
}

// isConfigured reports whether the kernel's device is still the one that the test created. A loop device must be bound
// to the same file, because the kernel gives its number to the next program that requests a loop device. The descriptor
// opened here prevents nothing: the device clears itself when its last user has closed it.
func isConfigured(t *testing.T, h device.Held) bool {
	t.Helper()
	if h.Kind == device.KindNBD {
		id, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(h.Loop), "backend"))
		return err == nil && strings.TrimSpace(string(id)) == "longhorn:test/"+h.Volume
	}
	if _, err := os.Stat(filepath.Join("/sys/block", filepath.Base(h.Loop), "loop")); errors.Is(err, os.ErrNotExist) {
		return false
	}
	loop, err := os.Open(h.Loop)
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
		return false
	}
	defer loop.Close()
	status, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
	if err != nil {
		require.ErrorIs(t, err, unix.ENXIO)
		return false
	}
	return unix.Minor(status.Device) == h.Connection && bytes.HasPrefix(status.File_name[:], []byte("longhorn:"+h.Volume+"\x00"))
}

func execute(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

// logWriter writes the messages of a holder to the test's log.
type logWriter struct {
	t    *testing.T
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (w *logWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func itoa(n int) string { return fmt.Sprint(n) }
