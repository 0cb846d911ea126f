package share

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
)

const (
	// roleEnv has the options of a share manager. If it is set, this program is that share manager.
	roleEnv = "LONGHORN_TEST_SHARE_OPTIONS"
	// lookupEnv has the name of an export. If it is set, this program prints its file handle.
	lookupEnv = "LONGHORN_TEST_SHARE_LOOKUP"
	// clientEnv has the name of an NFS client. If it is set, this program is that client until it has renewed its lease
	// once.
	clientEnv = "LONGHORN_TEST_SHARE_CLIENT"
	// leavingEnv has the name of an NFS client. If it is set, this program is that client, and unregisters.
	leavingEnv = "LONGHORN_TEST_SHARE_LEAVING"
	// removeEnv has the name of an entry in the root of the share vol. If it is set, this program removes the entry as
	// a client of NFSv4.0.
	removeEnv = "LONGHORN_TEST_SHARE_REMOVE"
	// returningEnv has the name of an NFS client. If it is set, this program is that client until it has reclaimed its
	// state.
	returningEnv = "LONGHORN_TEST_SHARE_RETURNING"
	// verdictEnv has the name of a file with the answer whether the role's engine is in force. If it is not set, the
	// question is not possible.
	verdictEnv = "LONGHORN_TEST_SHARE_VERDICT"
	// lockerEnv has the task of a client with a lock. If it is set, this program is that client (beLocker).
	lockerEnv = "LONGHORN_TEST_SHARE_LOCKER"
	// askEnv has the address of a share manager's health port. If it is set, this program asks there for a loss.
	askEnv = "LONGHORN_TEST_SHARE_ASK"
	// imageEnv has the directory with the commands that a share manager uses; "": it uses the test's commands.
	imageEnv = "LONGHORN_TEST_SHARE_IMAGE"
	patience = time.Minute
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(roleEnv) != "":
		os.Exit(beRole(os.Getenv(roleEnv)))
	case os.Getenv(lookupEnv) != "":
		handle, err := nfsclient.NewProber(2049, patience).Lookup(context.Background(), os.Getenv(lookupEnv))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintf(os.Stdout, "%x", handle)
	case os.Getenv(removeEnv) != "":
		fmt.Fprint(os.Stdout, removeFromRoot(os.Getenv(removeEnv)))
	case os.Getenv(clientEnv) != "":
		if err := beClient(os.Getenv(clientEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(leavingEnv) != "":
		if err := beLeaving(os.Getenv(leavingEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(lockerEnv) != "":
		held, err := beLocker(os.Getenv(lockerEnv))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprint(os.Stdout, held)
	case os.Getenv(askEnv) != "":
		found, err := AskRecovery(context.Background(), os.Getenv(askEnv))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprint(os.Stdout, found.Reason, " ", found.Message)
	case os.Getenv(returningEnv) != "":
		if err := beReturning(os.Getenv(returningEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// beRole is a share manager in its own network namespace.
func beRole(options string) int {
	o := Options{}
	err := json.Unmarshal([]byte(options), &o)
	if image := os.Getenv(imageEnv); err == nil && image != "" {
		err = mountns.EnterRoot(image)
	}
	if err == nil {
		err = exec.Command("ip", "link", "set", "lo", "up").Run()
	}
	if err == nil && os.Getpid() == 1 {
		err = syscall.Mount("proc", "/proc", "proc", 0, "") // shows its own processes
	}
	if err == nil {
		o.Log = logrus.NewEntry(logrus.New())
		o.InForce = verdictIn(os.Getenv(verdictEnv))
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = Run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the share manager ended:", err)
		return 1
	}
	return 0
}

// output is what a process has written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// role is a share manager in its own process.
type role struct {
	t     *testing.T
	o     Options
	cmd   *exec.Cmd
	out   *output
	ended chan struct{}
}

func startRole(t *testing.T, dir, device string, change func(*Options)) *role {
	t.Helper()
	return startRoleAs(t, dir, device, change, 0)
}

// startRoleAs starts a role that has further namespaces of its own.
func startRoleAs(t *testing.T, dir, device string, change func(*Options), namespaces uintptr) *role {
	t.Helper()
	o := valid()
	o.Volume, o.Device, o.HealthListen = "vol", device, "127.0.0.1:9600"
	o.ExportRoot, o.RuntimeDirectory, o.ClientsFile = filepath.Join(dir, "export"), filepath.Join(dir, "run"), filepath.Join(dir, "clients")
	o.Lease, o.Grace = 6*time.Second, 6*time.Second
	if change != nil {
		change(&o)
	}
	r := &role{t: t, o: o, out: &output{}, ended: make(chan struct{})}
	text, err := json.Marshal(struct {
		Options
		Log *struct{} // hides the field that cannot be encoded
	}{Options: o})
	require.NoError(t, err)
	r.cmd = exec.Command("/proc/self/exe", "-test.run=^$")
	r.cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | namespaces}
	require.NoError(t, r.cmd.Start())
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
		_ = r.cmd.Process.Kill() // and the server is killed with it
		<-r.ended
		if t.Failed() {
			t.Logf("the share manager said:\n%s", r.out)
		}
	})
	return r
}

// await waits until the role has written a text the given number of times.
func (r *role) await(text string, times int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return strings.Count(r.out.String(), text) >= times }, patience, 20*time.Millisecond,
		"%q was not said %d times", text, times)
}

// awaitClients waits until the server has said how many clients of the former server it knows. It may say so only after
// the role has said that clients are served.
func (r *role) awaitClients(count int) {
	r.t.Helper()
	r.await(fmt.Sprintf("clid count(%d)", count), 1)
}

// awaitSomeClients is awaitClients for any number but 0.
func (r *role) awaitSomeClients() {
	r.t.Helper()
	known := regexp.MustCompile(`clid count\([1-9]`)
	require.Eventually(r.t, func() bool { return known.MatchString(r.out.String()) }, patience, 20*time.Millisecond,
		"the clients of the former server are not known")
}

const (
	sayServed    = "Clients are served"
	sayUnserved  = "Clients are no longer served"
	sayGraceOver = "NOT IN GRACE"
	sayNoRecords = "The volume has no records of an earlier server's clients"
)

// ganesha is the process number of the server.
func (r *role) ganesha() int {
	r.t.Helper()
	var found int
	require.Eventually(r.t, func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
		for _, thread := range threads {
			pids, _ := os.ReadFile(thread)
			for _, field := range strings.Fields(string(pids)) {
				name, _ := os.ReadFile(filepath.Join("/proc", field, "comm"))
				if strings.Contains(string(name), "ganesha") {
					found, _ = strconv.Atoi(field)
				}
			}
		}
		return found != 0
	}, patience, 20*time.Millisecond, "no server runs")
	return found
}

// end waits until the role exits, and returns its exit code.
func (r *role) end() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		require.Fail(r.t, "the share manager does not end")
	}
	return r.cmd.ProcessState.ExitCode()
}

// terminate stops the role as the kubelet does.
func (r *role) terminate() {
	r.t.Helper()
	start := time.Now()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGTERM))
	assert.Zero(r.t, r.end())
	assert.Less(r.t, time.Since(start), 25*time.Second)
}

// inside runs a command in the role's network.
func (r *role) inside(env string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net", "-t", strconv.Itoa(r.cmd.Process.Pid)}, command...)...)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// client runs a command of libnfs-utils until it succeeds. The command fails while the server is away, or waits for
// former clients to reclaim their files.
func (r *role) client(command ...string) string {
	r.t.Helper()
	var out string
	var err error
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		if out, err = r.inside("", command...); err == nil {
			return out
		}
		require.True(r.t, time.Now().Before(deadline), "%v: %s", command, out)
	}
}

// within runs a command in all namespaces of the role.
func (r *role) within(command ...string) {
	r.t.Helper()
	run(r.t, "nsenter", append([]string{"-a", "-t", strconv.Itoa(r.cmd.Process.Pid)}, command...)...)
}

// listening lists the TCP ports on which a process in the role's network listens.
func (r *role) listening() []int {
	r.t.Helper()
	ports := map[int]bool{}
	for _, family := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", r.cmd.Process.Pid, family))
		require.NoError(r.t, err)
		for _, m := range listener.FindAllSubmatch(table, -1) {
			port, err := strconv.ParseUint(string(m[1]), 16, 16)
			require.NoError(r.t, err)
			ports[int(port)] = true
		}
	}
	return slices.Sorted(maps.Keys(ports))
}

// listener matches the line of a listening socket: its local port, any remote port, and the state.
var listener = regexp.MustCompile(`:([0-9A-F]{4}) [0-9A-F]+:0000 0A `)

// processes lists the state of each child of the role.
func (r *role) processes() string {
	var states strings.Builder
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	for _, thread := range threads {
		pids, _ := os.ReadFile(thread)
		for _, pid := range strings.Fields(string(pids)) {
			stat, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
			states.Write(stat)
		}
	}
	return states.String()
}

func (r *role) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "file")
	require.NoError(r.t, os.WriteFile(file, []byte(text), 0o600))
	r.client("nfs-cp", file, url(name))
}

func (r *role) wantRead(name, text string) {
	r.t.Helper()
	assert.Equal(r.t, text, r.client("nfs-cat", url(name)))
}

func url(name string) string { return "nfs://127.0.0.1/vol/" + name + "?version=4&nfsport=2049" }

// handle is the file handle of the share's root, as clients store it.
func (r *role) handle() string {
	r.t.Helper()
	self, err := os.Executable()
	require.NoError(r.t, err)
	out, err := r.inside(lookupEnv+"=vol", self, "-test.run=^$")
	require.NoError(r.t, err, out)
	return out
}

// newImage creates a sparse file.
func newImage(t *testing.T, sizeBytes int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, sizeBytes))
	return file
}

// loopDevice creates a device for a file until the test ends.
func loopDevice(t *testing.T, file string, options ...string) string {
	t.Helper()
	device := strings.TrimSpace(run(t, "losetup", append(options, "--find", "--show", file)...))
	t.Cleanup(func() {
		out, err := exec.Command("losetup", "--detach", device).CombinedOutput()
		assert.NoError(t, err, "detaching %s: %s", device, out)
	})
	return device
}

func run(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := exec.Command(command, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", command, args, out)
	return string(out)
}
