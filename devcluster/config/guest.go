package config

// GuestModules are what containers, pod networks and kube-proxy need of a
// kernel that has next to nothing built in. File systems and the rest are loaded
// by their first use.
func GuestModules() []string {
	return []string{
		"fuse", "loop", "veth", "br_netfilter", "nf_conntrack",
		"iptable_nat", "iptable_filter", "iptable_mangle",
		"xt_comment", "xt_conntrack", "xt_MASQUERADE", "xt_statistic", "xt_mark", "xt_addrtype",
	}
}

// GuestLinks make the legacy iptables the guest's iptables: by the newer one
// the rules of services are not found in this kernel, while the node says that
// it is ready.
func GuestLinks() map[string]string {
	links := map[string]string{}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			links["/etc/alternatives/"+family+verb] = "/usr/sbin/" + family + "-legacy" + verb
		}
	}
	return links
}
