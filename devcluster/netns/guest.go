package netns

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// Guest is a member of the network that has a kernel, and so a network, of its own. It is connected to two tap devices
// of the router. One is the link that every member has. The other is for management: only the router's namespace
// reaches the guest through it. The management link stays up when the guest is cut off.
type Guest struct {
	Port string     `json:"port"`
	IP   net.IP     `json:"ip"`
	Pods *net.IPNet `json:"pods"`

	ManagementPort string `json:"managementPort"`
	ManagementIP   net.IP `json:"managementIP"`
}

// ManagementDevice is the guest's name for its end of the management link.
const ManagementDevice = "mgmt0"

// managementGateway is the router's address on every management port.
var managementGateway = net.IPv4(169, 254, 3, 1)

// Taps are the devices in the order in which the guest's kernel must have them.
func (g Guest) Taps() []string { return []string{g.Port, g.ManagementPort} }

// Plug creates the router's ends of a guest's links.
func Plug(router string, g Guest) error {
	err := Do(router, func() error {
		if err := addPort(Member{Port: g.Port, IP: g.IP, Pods: g.Pods}, tap(g.Port)); err != nil {
			return err
		}
		_, err := makePort(g.ManagementPort, managementGateway, g.ManagementIP, tap(g.ManagementPort))
		return err
	})
	if err != nil {
		return fmt.Errorf("plug a guest into %s: %w", router, err)
	}
	// No packet from beyond the router may enter through it.
	return Cut(router, g.ManagementPort)
}

// Unplug removes them, and the rules of Cut for them. It is not an error if they do not exist.
func Unplug(router string, g Guest) error {
	var failed []error
	for _, port := range g.Taps() {
		failed = append(failed, Heal(router, port), Do(router, func() error { return deletePort(port) }))
	}
	return errors.Join(failed...)
}

func tap(name string) netlink.Link {
	return &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
}

// SetUpInside configures the network of the guest. It finds the devices by the kernel's names, and must be called on
// the guest.
func (g Guest) SetUpInside() error {
	for from, to := range map[string]string{"vec0": "eth0", "vec1": ManagementDevice} {
		link, err := netlink.LinkByName(from)
		if err != nil {
			return fmt.Errorf("find %s: %w", from, err)
		}
		if err := netlink.LinkSetName(link, to); err != nil {
			return fmt.Errorf("rename %s: %w", from, err)
		}
	}
	if err := setUpAny(); err != nil {
		return err
	}
	if err := setUpMember(Member{IP: g.IP}); err != nil {
		return err
	}
	return g.setUpManagement()
}

func (g Guest) setUpManagement() error {
	link, err := netlink.LinkByName(ManagementDevice)
	if err != nil {
		return fmt.Errorf("find %s: %w", ManagementDevice, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: host(g.ManagementIP)}); err != nil {
		return fmt.Errorf("address %s: %w", g.ManagementIP, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", ManagementDevice, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: host(managementGateway), Scope: netlink.SCOPE_LINK, Src: g.ManagementIP}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("management route: %w", err)
	}
	return nil
}
