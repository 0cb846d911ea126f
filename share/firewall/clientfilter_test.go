package firewall

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

func TestParseClients(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []netip.Prefix
		err        string
	}{
		{"any", "any\n", nil, ""},
		{"addresses of both families", "10.0.0.7\nfd00::7\n", networks("10.0.0.7/32", "fd00::7/128"), ""},
		{"IPv4 within IPv6 → IPv4", "::ffff:10.0.0.7", networks("10.0.0.7/32"), ""},
		{"networks, host bits and all", "10.1.3.1/24\nfd00::1/64", networks("10.1.3.0/24", "fd00::/64"), ""},
		{"nothing → an error", " \n", nil, "the list is empty"},
		{"any and more → an error", "any\n10.0.0.7", nil, `"any" is neither an address nor a network`},
		{"a name → an error", "10.0.0.7\nnode-1", nil, `"node-1" is neither an address nor a network`},
		{"an address of a link → an error", "fe80::1%eth0", nil, `"fe80::1%eth0" is neither an address nor a network`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseClients(c.text)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func networks(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// TestTheClientFilterFollowsItsFile writes the file, lets time pass, and checks the requests to the kernel.
func TestTheClientFilterFollowsItsFile(t *testing.T) {
	var asked [][]netip.Prefix
	var refusal error
	now := time.Hour
	var kernel error
	told, logger := func(err error) { kernel = err }, logrus.New()
	logger.SetOutput(io.Discard)
	d := NewClientFilter(filepath.Join(t.TempDir(), "clients"), testPort, func() time.Duration { return now }, told, logrus.NewEntry(logger))
	d.limit = func(n []netip.Prefix) error { asked = append(asked, n); return refusal }
	step := func(why, text string, want ...[]netip.Prefix) {
		t.Helper()
		if text != "" {
			require.NoError(t, os.WriteFile(d.file, []byte(text), 0o600))
		}
		asked, now = nil, now+readInterval
		d.Update()
		assert.Equal(t, want, asked, why)
	}
	reason := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(d.file), "reason"), []byte(text), 0o600))
	}
	nobody := []netip.Prefix{}
	one, two := networks("10.0.0.1/32"), networks("10.0.0.1/32", "10.0.0.2/32")
	refusal = errors.New("no nftables")
	step("there is no file", "", nobody)
	assert.Equal(t, refusal, kernel, "not even to close the port")
	refusal = nil
	step("there still is none, and the kernel agrees", "", nobody)
	assert.NoError(t, kernel)
	step("there still is none", "")
	step("it is empty", " ")
	step("a leader of an earlier release does not know one node, and opens all", "any")
	assert.ErrorContains(t, errors.New(d.failed.Last()), "the reason next to it is")
	reason(types.ReasonClientsNotKnown)
	step("it says so", "any")
	step("the list comes", "10.0.0.1", one)
	step("at rest", "")
	step("it is no list", "nonsense")
	assert.NotEmpty(t, d.failed.Last())
	step("it is the former again", "10.0.0.1", one)
	assert.Empty(t, d.failed.Last())
	refusal = errors.New("no nftables")
	step("the kernel refuses", "10.0.0.1 10.0.0.2", two)
	step("it is asked again", "", two)
	assert.Equal(t, refusal, kernel)
	refusal = nil
	step("it agrees", "", two)
	assert.NoError(t, kernel)
	step("at rest again", "")
	step("an earlier leader opens all", "any")
	step("the list is back", "10.0.0.1", one)
	reason(types.ReasonClientsAllowedBySetting)
	require.NoError(t, os.WriteFile(d.file, []byte("any"), 0o600))
	asked = nil
	d.Update()
	assert.Empty(t, asked, "it is not due")
	step("a person opens all", "", nil)
	step("the list is back", "10.0.0.1", one)
	require.NoError(t, os.Remove(d.file))
	step("it is gone", "")
	step("it is empty", " ")
}

// clientRules is a network with an echo server at a port, and a client's network connected to it, which has any address
// of 192.0.2.0/24 and fd00:2::/64.
type clientRules struct {
	t              *testing.T
	server, client string
	accepted       chan net.Conn // the server's ends
}

const (
	testPort = 2049
	patience = time.Minute
)

func run(t *testing.T, command string, args ...string) {
	t.Helper()
	out, err := exec.Command(command, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", command, args, out)
}

func newClientRules(t *testing.T) clientRules {
	t.Helper()
	mountns.Needs(t, "ip")
	if os.Getuid() != 0 {
		mountns.Missing(t, "root")
	}
	id := strconv.Itoa(os.Getpid())
	d := clientRules{t, "lh-door-" + id, "lh-caller-" + id, make(chan net.Conn, 100)}
	for _, name := range []string{d.server, d.client} {
		run(t, "ip", "netns", "add", name)
		t.Cleanup(func() { run(t, "ip", "netns", "delete", name) })
		run(t, "ip", "-n", name, "link", "set", "lo", "up")
	}
	run(t, "ip", "-n", d.client, "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", d.server)
	for i := 1; i <= 9; i++ {
		run(t, "ip", "-n", d.client, "address", "add", fmt.Sprintf("192.0.2.%d/24", i), "dev", "here")
		run(t, "ip", "-n", d.client, "address", "add", fmt.Sprintf("fd00:2::%d/64", i), "dev", "here", "nodad")
	}
	run(t, "ip", "-n", d.server, "address", "add", "192.0.2.100/24", "dev", "there")
	run(t, "ip", "-n", d.server, "address", "add", "fd00:2::100/64", "dev", "there", "nodad")
	run(t, "ip", "-n", d.client, "link", "set", "here", "up")
	run(t, "ip", "-n", d.server, "link", "set", "there", "up")
	// to the source address that the server sees
	run(t, "ip", "-n", d.server, "route", "add", "default", "via", "192.0.2.1")
	run(t, "ip", "-n", d.server, "route", "add", "default", "via", "fd00:2::1")
	d.in(d.server, func() error {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", testPort))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				d.accepted <- conn
				go func() { _, _ = io.Copy(conn, conn) }()
			}
		}()
		return nil
	})
	return d
}

// reset ends the first connection, in the same way as the exit of a server's process.
func (d clientRules) reset() {
	d.t.Helper()
	conn := (<-d.accepted).(*net.TCPConn)
	require.NoError(d.t, conn.SetLinger(0))
	require.NoError(d.t, conn.Close())
}

func (d clientRules) in(name string, act func() error) {
	d.t.Helper()
	require.NoError(d.t, netns.In("/run/netns/"+name, act))
}

// limit does in the server's network what the share's process does.
func (d clientRules) limit(n []netip.Prefix) {
	d.t.Helper()
	d.in(d.server, func() error { return limitClients(testPort, n) })
}

// call opens a connection from an address of the client's network; nil: it gets no answer.
func (d clientRules) call(from string) net.Conn {
	d.t.Helper()
	to, limit := "192.0.2.100", patience
	if netip.MustParseAddr(from).Is6() {
		to = "fd00:2::100"
	}
	var conn net.Conn
	d.in(d.client, func() error {
		var err error
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: limit}
		conn, err = dialer.Dial("tcp", net.JoinHostPort(to, strconv.Itoa(testPort)))
		return err
	})
	d.t.Cleanup(func() { _ = conn.Close() })
	d.echo(conn)
	return conn
}

// refused checks that a connection from an address gets no answer. An answer would come at once.
func (d clientRules) refused(from string) {
	d.t.Helper()
	to := "192.0.2.100"
	if netip.MustParseAddr(from).Is6() {
		to = "fd00:2::100"
	}
	d.in(d.client, func() error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Second}
		conn, err := dialer.Dial("tcp", net.JoinHostPort(to, strconv.Itoa(testPort)))
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("%s was let in", from)
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			return err
		}
		return nil
	})
}

func (d clientRules) echo(conn net.Conn) {
	d.t.Helper()
	require.NoError(d.t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := conn.Write([]byte("hello"))
	require.NoError(d.t, err)
	answer := make([]byte, 5)
	_, err = io.ReadFull(conn, answer)
	require.NoError(d.t, err)
	assert.Equal(d.t, "hello", string(answer))
}

// silent checks that data sent over a connection gets no answer. An answer would come at once.
func (d clientRules) silent(conn net.Conn) {
	d.t.Helper()
	require.NoError(d.t, conn.SetDeadline(time.Now().Add(time.Second)))
	_, err := conn.Write([]byte("hello"))
	require.NoError(d.t, err)
	n, err := conn.Read(make([]byte, 5))
	assert.Zero(d.t, n)
	require.ErrorIs(d.t, err, os.ErrDeadlineExceeded)
}

func TestOnlyListedClientsAreAdmitted(t *testing.T) {
	d := newClientRules(t)
	d.call("192.0.2.1") // any client, without a list

	d.limit(networks("192.0.2.1/32", "fd00:2::1/128", "192.0.2.4/30", "fd00:2::4/126"))
	one := d.call("192.0.2.1")
	six := d.call("fd00:2::1")
	d.call("192.0.2.4")
	d.call("192.0.2.7")
	d.call("fd00:2::7")
	d.refused("192.0.2.2")
	d.refused("192.0.2.8")
	d.refused("fd00:2::2")
	d.refused("fd00:2::8")
	d.in(d.server, func() error { // Ganesha's supervisor
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(testPort)))
		if err == nil {
			_ = conn.Close()
		}
		return err
	})

	d.limit(networks("192.0.2.2/32"))
	d.call("192.0.2.2")
	d.refused("192.0.2.1")
	d.refused("fd00:2::1")
	d.silent(one) // established before
	d.silent(six)

	d.limit(nil)
	d.call("192.0.2.9")
	d.call("fd00:2::9")
}

// TestTheClientRulesComeBeforeTheOneSource: the list applies to the clients' real addresses, not to the address that
// the server sees.
func TestTheClientRulesComeBeforeTheOneSource(t *testing.T) {
	d := newClientRules(t)
	d.limit(networks("192.0.2.1/32", "fd00:2::1/128"))
	d.in(d.server, func() error { return ShowOneSource(testPort) })
	one := d.call("192.0.2.1")
	d.call("fd00:2::1")
	d.refused("192.0.2.2")
	d.refused("fd00:2::2")
	d.limit(networks("192.0.2.1/32", "192.0.2.2/32"))
	two := d.call("192.0.2.2")
	d.echo(one)
	d.limit(networks("192.0.2.2/32"))
	d.silent(one)
	d.echo(two)
}

func TestALongListFitsTheKernel(t *testing.T) {
	d := newClientRules(t)
	var long []netip.Prefix
	for i := range 20_000 {
		long = append(long, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32))
	}
	d.limit(append(long, networks("192.0.2.1/32")...))
	d.call("192.0.2.1")
	d.refused("192.0.2.2")
}
