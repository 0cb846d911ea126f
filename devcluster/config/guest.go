package config

// GuestModules returns the modules that containers, pod networks and kube-proxy need in a kernel that has almost
// nothing built in. Modules of file systems and others are loaded when they are first used.
func GuestModules() []string {
	return []string{
		"fuse", "loop", "veth", "br_netfilter", "nf_conntrack",
		"iptable_nat", "iptable_filter", "iptable_mangle",
		"xt_comment", "xt_conntrack", "xt_MASQUERADE", "xt_statistic", "xt_mark", "xt_addrtype",
	}
}

// GuestLinks returns links that make the legacy iptables the guest's iptables. With the newer iptables, the rules of
// services are not effective in this kernel, although the node reports that it is ready.
func GuestLinks() map[string]string {
	links := map[string]string{}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			links["/etc/alternatives/"+family+verb] = "/usr/sbin/" + family + "-legacy" + verb
		}
	}
	return links
}
