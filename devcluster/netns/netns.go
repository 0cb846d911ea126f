// Package netns owns the network of a development cluster: named network namespaces, one of which is a router that
// joins all the others. None of them has an address or a route in the namespace of the machine itself. It must not know
// what runs inside the namespaces.
//
//	         router namespace  <name>-net
//	   to-plane      to-node-1      to-node-2 …     every port 169.254.1.1/32
//	      │             │              │
//	     eth0          eth0           eth0          172.30.0.1/32, 172.30.1.N/32
//	<name>-plane   <name>-node-1  <name>-node-2     default via 169.254.1.1
//
// Members are joined by a router and not by a bridge, so that the packets of a member that is cut off are dropped
// silently. On a bridge, such a member would not answer ARP, and connections would break immediately with "no route to
// host".
package netns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// bindDir is the directory of named namespaces, as for ip-netns(8).
const bindDir = "/run/netns"

// Path returns the file that names the namespace.
func Path(name string) string {
	return filepath.Join(bindDir, name)
}

// Create creates a named namespace with its loopback device up and forwarding on. A namespace that a crash left there
// is replaced.
func Create(name string) error {
	if err := Delete(name); err != nil {
		return err
	}
	err := onLockedThread(func() error {
		handle, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("create network namespace %s: %w", name, err)
		}
		return handle.Close()
	})
	if err != nil {
		return err
	}
	if err := Do(name, setUpAny); err != nil {
		return fmt.Errorf("set up network namespace %s: %w", name, err)
	}
	return nil
}

// setUpAny configures what every machine has.
func setUpAny() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	for _, key := range []string{"net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/"+key, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("turn on forwarding: %w", err)
		}
	}
	return nil
}

// Delete removes the name; the namespace itself ends with its last process. It is not an error if the name does not
// exist.
func Delete(name string) error {
	p := Path(name)
	if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount network namespace %s: %w", name, err)
	}
	err := os.Remove(p)
	if errors.Is(err, unix.EBUSY) {
		err = onLockedThread(func() error { return removeCovered(p) })
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", name, err)
	}
	return nil
}

// removeCovered removes a file that has a mount which no path reaches any longer. ip-netns(8) binds the directory over
// itself, with the mounts in it, and Delete unmounted only the upper copy. removeCovered moves its thread to a new
// mount namespace and unmounts all of these mounts there, which does not affect mounts of other programs. When a file
// has no mount in the caller's namespace and is removed, the kernel unmounts the mounts on this file in all other
// namespaces.
func removeCovered(p string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, target := range []string{filepath.Dir(p), p} {
		for unix.Unmount(target, unix.MNT_DETACH) == nil {
			continue // with the mount below
		}
	}
	if err := os.Remove(p); err != nil {
		// Not wrapped: callers accept a missing file, which here would be an error.
		return fmt.Errorf("beneath its mounts: %s", err.Error())
	}
	return nil
}

// Names lists the named namespaces that start with prefix.
func Names(prefix string) ([]string, error) {
	entries, err := os.ReadDir(bindDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Do runs f on a thread inside the named namespace. Processes that f starts are in this namespace, too. f must not
// start goroutines that expect to be there.
func Do(name string, f func() error) error {
	return onLockedThread(func() error {
		handle, err := netns.GetFromName(name)
		if err != nil {
			return fmt.Errorf("open network namespace %s: %w", name, err)
		}
		defer func() { _ = handle.Close() }()
		if err := netns.Set(handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		return f()
	})
}

// onLockedThread runs f on an operating system thread that is not used again, because its namespace may have changed.
// The caller waits.
func onLockedThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// gateway is the router's address on every port.
var gateway = net.IPv4(169, 254, 1, 1)

// Member is a namespace that is joined to the router.
type Member struct {
	// Name is the name of its namespace.
	Name string
	// Port is the name of the router's end, at most 15 bytes.
	Port string
	IP   net.IP
	// Pods is also routed to the member, if it is not nil.
	Pods *net.IPNet
}

// Join connects the member's namespace to the router's by a veth pair, and sets addresses and routes on both sides.
// Both namespaces must exist.
func Join(router string, m Member) error {
	target, err := netns.GetFromName(m.Name)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", m.Name, err)
	}
	defer func() { _ = target.Close() }()
	err = Do(router, func() error {
		return addPort(m, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: m.Port}, PeerName: "eth0", PeerNamespace: netlink.NsFd(target)})
	})
	if err != nil {
		return fmt.Errorf("join %s to %s: %w", m.Name, router, err)
	}
	err = Do(m.Name, func() error { return setUpMember(m) })
	if err != nil {
		return fmt.Errorf("set up the network of %s: %w", m.Name, err)
	}
	return nil
}

// addPort creates the router's end of a link, and the routes to the member through it.
func addPort(m Member, link netlink.Link) error {
	index, err := makePort(m.Port, gateway, m.IP, link)
	if err != nil || m.Pods == nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: m.Pods, Gw: m.IP, Flags: int(netlink.FLAG_ONLINK)}); err != nil {
		return fmt.Errorf("route to %s: %w", m.Pods, err)
	}
	return nil
}

// makePort replaces the port by the link, with the router's own address, and adds a route to the address at its other
// end.
func makePort(name string, own, other net.IP, link netlink.Link) (index int, err error) {
	if err := deletePort(name); err != nil {
		return 0, err
	}
	if err := netlink.LinkAdd(link); err != nil {
		return 0, fmt.Errorf("add port %s: %w", name, err)
	}
	port, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find port %s: %w", name, err)
	}
	if err := netlink.AddrAdd(port, &netlink.Addr{IPNet: host(own)}); err != nil {
		return 0, fmt.Errorf("address of port %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(port); err != nil {
		return 0, fmt.Errorf("set port %s up: %w", name, err)
	}
	index = port.Attrs().Index
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: host(other), Scope: netlink.SCOPE_LINK, Src: own}); err != nil {
		return 0, fmt.Errorf("route to %s: %w", other, err)
	}
	return index, nil
}

func deletePort(name string) error {
	old, err := netlink.LinkByName(name)
	if err != nil {
		return nil // it does not exist
	}
	if err := netlink.LinkDel(old); err != nil {
		return fmt.Errorf("remove port %s: %w", name, err)
	}
	return nil
}

func setUpMember(m Member) error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0: %w", err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: host(m.IP)}); err != nil {
		return fmt.Errorf("address %s: %w", m.IP, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set eth0 up: %w", err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway, Flags: int(netlink.FLAG_ONLINK), Src: m.IP}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}

func host(ip net.IP) *net.IPNet {
	return &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}
}

// Blackhole makes the router silently drop packets that are addressed to the range and have no route of their own:
// members that are off do not answer.
func Blackhole(router string, dst *net.IPNet) error {
	return Do(router, func() error {
		if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Type: unix.RTN_BLACKHOLE}); err != nil {
			return fmt.Errorf("route %s to nowhere: %w", dst, err)
		}
		return nil
	})
}

// Cut makes the router silently drop every packet from and to the port. The programs inside the member continue to run.
// It may be repeated.
func Cut(router, port string) error {
	if err := Heal(router, port); err != nil {
		return err
	}
	return Do(router, func() error {
		for _, rule := range cutRules(port) {
			if err := iptables(append([]string{"-I"}, rule...)...); err != nil {
				return fmt.Errorf("cut %s off: %w", port, err)
			}
		}
		return nil
	})
}

// Heal undoes Cut. It is not an error if the port is not cut off.
func Heal(router, port string) error {
	return Do(router, func() error {
		for _, rule := range cutRules(port) {
			for iptables(append([]string{"-C"}, rule...)...) == nil {
				if err := iptables(append([]string{"-D"}, rule...)...); err != nil {
					return fmt.Errorf("heal %s: %w", port, err)
				}
			}
		}
		return nil
	})
}

func cutRules(port string) [][]string {
	return [][]string{
		{"FORWARD", "-i", port, "-j", "DROP"},
		{"FORWARD", "-o", port, "-j", "DROP"},
	}
}

func iptables(args ...string) error {
	out, err := exec.Command("iptables", append([]string{"-w", "5"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("iptables %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
