// Package servicenet creates a minimal network of a node: two pods, and a Service with a rule that leads to one of
// them, like a rule of kube-proxy. It knows no package under test.
package servicenet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

// The addresses. A pod's server listens on the Service's port.
var (
	Service = netip.MustParseAddrPort("10.96.0.9:2049")
	Pods    = [2]netip.AddrPort{netip.MustParseAddrPort("10.1.0.4:2049"), netip.MustParseAddrPort("10.1.1.4:2049")}
)

// Net is the node's network.
type Net struct {
	t *testing.T
	// File is the file of its network namespace.
	File string
}

// New creates the network. For each connection to a pod it calls serve, which may return when the connection ends. It
// skips the test without root.
func New(t *testing.T, serve func(pod int, conn net.Conn)) *Net {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		mountns.Missing(t, "root, and the command ip (scripts/setup installs it)")
	}
	node := fmt.Sprintf("lh-node-%d", os.Getpid())
	n := &Net{t, "/run/netns/" + node}
	n.ip("netns", "add", node)
	t.Cleanup(func() { n.ip("netns", "delete", node) })
	n.ip("-n", node, "link", "set", "lo", "up")
	for i, pod := range Pods {
		name, link := podName(i), fmt.Sprintf("pod%d", i)
		n.ip("netns", "add", name)
		t.Cleanup(func() { n.ip("netns", "delete", name) })
		n.ip("-n", node, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
		n.ip("-n", node, "address", "add", fmt.Sprintf("10.1.%d.1/24", i), "dev", link)
		n.ip("-n", node, "link", "set", link, "up")
		n.ip("-n", name, "link", "set", "lo", "up")
		n.ip("-n", name, "address", "add", pod.Addr().String()+"/24", "dev", "eth0")
		n.ip("-n", name, "link", "set", "eth0", "up")
		n.ip("-n", name, "route", "add", "default", "via", fmt.Sprintf("10.1.%d.1", i))
		n.listen(name, pod, func(conn net.Conn) { serve(i, conn) })
	}
	n.ip("-n", node, "route", "add", "default", "via", Pods[0].Addr().String())
	return n
}

// podName returns the name of a pod's network.
func podName(pod int) string { return fmt.Sprintf("lh-pod-%d-%d", pod, os.Getpid()) }

func (n *Net) ip(words ...string) {
	n.t.Helper()
	out, err := exec.Command("ip", words...).CombinedOutput()
	require.NoError(n.t, err, "ip %v: %s", words, out)
}

func (n *Net) listen(name string, at netip.AddrPort, serve func(net.Conn)) {
	n.t.Helper()
	require.NoError(n.t, netns.In("/run/netns/"+name, func() error {
		listener, err := net.Listen("tcp", at.String())
		if err != nil {
			return err
		}
		n.t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() { defer conn.Close(); serve(conn) }()
			}
		}()
		return nil
	}))
}

// In calls act in the node's network.
func (n *Net) In(act func() error) {
	n.t.Helper()
	require.NoError(n.t, netns.In(n.File, act))
}

// Lead makes the Service lead new connections to a pod.
func (n *Net) Lead(pod int) {
	n.t.Helper()
	n.In(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "services"}
		c.AddTable(table) // so that DelTable finds one
		c.DelTable(table)
		c.AddTable(table)
		chain := c.AddChain(&nftables.Chain{Name: "output", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
		const destination = 16 // its offset in the header of IPv4
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: 4},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: Service.Addr().AsSlice()},
			&expr.Immediate{Register: 1, Data: Pods[pod].Addr().AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
		}})
		return c.Flush()
	})
}

// Silence makes a pod stop answering, like a pod on a node that has lost its power.
func (n *Net) Silence(pod int) {
	n.t.Helper()
	n.ip("-n", podName(pod), "route", "add", "blackhole", fmt.Sprintf("10.1.%d.1/32", pod))
}

// Dialing starts to connect to an address from the node's network, and sends the result to the channel. It continues as
// long as the kernel tries.
func (n *Net) Dialing(to netip.AddrPort) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- netns.In(n.File, func() error {
			conn, err := net.Dial("tcp4", to.String())
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}()
	return ended
}

// Dial connects to an address from the node's network. If port is not 0, it is the local port.
func (n *Net) Dial(to netip.AddrPort, port int) net.Conn {
	n.t.Helper()
	var conn net.Conn
	n.In(func() (err error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}}
		conn, err = dialer.Dial("tcp4", to.String())
		return err
	})
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}
