package share

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	// refusalsEnv has the port whose refusals this program then holds back.
	refusalsEnv    = "LONGHORN_TEST_SHARE_REFUSALS"
	serverAddress  = "192.0.2.1"
	refusalsDenied = "denied"
)

// beServer holds refusals back, and does what it reads: it listens, or resets the connection that it has accepted. It answers each with a line.
func beServer(text string) int {
	port, err := strconv.Atoi(text)
	if err == nil {
		err = holdRefusals(port)
	}
	if err != nil {
		fmt.Println(refusalsDenied, err)
		return 1
	}
	fmt.Println("held")
	accepted := make(chan net.Conn, 1)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "listen":
			l, err := net.Listen("tcp", net.JoinHostPort(serverAddress, text))
			if err != nil {
				fmt.Println(err)
				return 1
			}
			go func() {
				if conn, err := l.Accept(); err == nil {
					accepted <- conn
				}
			}()
		case "reset":
			conn := <-accepted
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
		fmt.Println("done")
	}
	return 0
}

// otherNetwork runs this program as a server in a network of its own, which a cable joins to that of the calling thread.
func otherNetwork(t *testing.T, port int) (tell func(string)) {
	t.Helper()
	runtime.LockOSThread() // and never unlocks: the thread ends with the test, and its network with it
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNET))
	server := exec.Command("/proc/self/exe", "-test.run=^$")
	server.Env = append(os.Environ(), refusalsEnv+"="+strconv.Itoa(port))
	server.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	require.NoError(t, err)
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = server.Wait()
	})
	lines := bufio.NewScanner(out)
	next := func() string {
		require.True(t, lines.Scan(), "the server has ended: %v", lines.Err())
		return lines.Text()
	}
	if said := next(); strings.HasPrefix(said, refusalsDenied) {
		t.Skipf("this kernel has no nftables: %s", said)
	}
	pid := strconv.Itoa(server.Process.Pid)
	for _, command := range []string{
		"ip link add here type veth peer name there netns " + pid,
		"ip address add 192.0.2.2/24 dev here", "ip link set here up",
		"nsenter -n -t " + pid + " ip address add " + serverAddress + "/24 dev there", "nsenter -n -t " + pid + " ip link set there up",
	} {
		text, err := exec.Command("sh", "-c", command).CombinedOutput()
		require.NoError(t, err, "%s: %s", command, text)
	}
	return func(what string) {
		_, err := io.WriteString(in, what+"\n")
		require.NoError(t, err)
		require.Equal(t, "done", next())
	}
}

func TestAClientIsNotRefusedWhileTheServerStartsAnew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making networks needs root")
	}
	needs(t, "ip", "nsenter")
	tell := otherNetwork(t, 2049)
	dial := func(port string, limit time.Duration) (net.Conn, error) {
		return net.DialTimeout("tcp", net.JoinHostPort(serverAddress, port), limit)
	}
	_, err := dial("2050", 10*time.Second)
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "other ports are refused as ever")
	_, err = dial("2049", 300*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody listens, and nobody says so")

	tell("listen")
	conn, err := dial("2049", 10*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	tell("reset")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET, "a client learns at once that its server has died")
}
