#!/usr/bin/env bash
# Builds a kernel for the development cluster's guests, from the source of Debian 13's kernel. It adds two features that
# the kernel of Debian's package user-mode-linux lacks: nftables for IP, and closing a connection from outside
# (SOCK_DESTROY). The configuration is that of the package, with only the modules that guests use. The script prints the
# directory, which contains the program "linux" and "modules/RELEASE". With LONGHORN_GUEST_KERNEL=DIRECTORY,
# bin/devcluster starts guests with this kernel. The script needs root, a Debian mirror, the tools of a compiler, and
# 3 GB while it runs.
# Usage: scripts/guestkernel.sh     (a second call is instant; everything stays in /var/cache/longhorn-guest-kernel)
set -euo pipefail

suite=trixie
source=linux-source-6.12
tools=(gcc make flex bison bc xz-utils kmod libc6-dev)

# Options in addition to Debian's configuration. The guests' modules are below; the script removes all others.
enabled=(
	INET_DIAG INET_TCP_DIAG INET_UDP_DIAG INET_DIAG_DESTROY
	NF_TABLES_INET NF_TABLES_IPV4 NF_TABLES_IPV6
	NF_CONNTRACK_ZONES NF_CONNTRACK_TIMESTAMP
)
# NFT_CHAIN_NAT has no option: it is built with NFT_NAT.
modules=(NF_TABLES NFT_NAT NFT_MASQ NFT_REDIR NFT_REJECT NFT_CT NFT_LIMIT NFT_LOG NFT_COMPAT NFT_FIB_INET NFT_FIB_IPV4 NFT_FIB_IPV6)
# UML_NET_VDE needs a library. The others only take time to build.
disabled=(
	UML_NET_VDE DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT DEBUG_INFO_REDUCED LOCALVERSION_AUTO SECURITY BPFILTER
	INPUT SERIO HID I2C SPI MTD IIO SOUND UML_SOUND ATM CAN WIRELESS WLAN HAMRADIO RFKILL PHYLIB MEDIA_SUPPORT DRM FB
	JFS_FS REISERFS_FS NILFS2_FS F2FS_FS HFS_FS HFSPLUS_FS
)
# used contains modules, by their names in lsmod(8). The guests of the cluster and of test/guestdevices load them, or
# may need them.
used='
	overlay fuse loop nbd configfs iscsi_tcp libiscsi scsi_transport_iscsi sd_mod
	dm_mod dm_delay dm_flakey dm_crypt dm_dust dm_log_writes dm_snapshot
	nfs nfsv3 nfsv4 sunrpc lockd grace auth_rpcgss dns_resolver
	tun veth bridge br_netfilter dummy macvlan vxlan ipv6
	nf_conntrack nf_conntrack_netlink nfnetlink nf_nat nf_tables nft_ct nft_masq nft_limit nft_log nft_reject nft_compat nft_redir nft_quota
	nft_connlimit nft_objref nft_hash nft_numgen nf_log_syslog
	ip_tables iptable_nat iptable_filter iptable_mangle iptable_raw ip6_tables ip6table_nat ip6table_filter ip6table_mangle ip6table_raw
	ipt_REJECT ip6t_REJECT xt_comment xt_conntrack xt_MASQUERADE xt_statistic xt_mark xt_addrtype xt_multiport xt_nat xt_tcpudp xt_REDIRECT
	xt_LOG xt_limit xt_recent xt_physdev xt_connmark xt_state xt_set xt_nfacct xt_TCPMSS nfnetlink_acct
	ip_set ip_set_hash_ip ip_set_hash_net ip_set_hash_ipport ip_set_hash_ipportip ip_set_hash_ipportnet ip_set_bitmap_port
	udp_diag unix_diag netlink_diag raw_diag sch_netem sch_tbf sch_htb sch_ingress cls_u32 act_mirred
	af_alg algif_hash algif_skcipher xts cbc ecb ctr cts essiv hmac sha512_generic authenc crc32c_generic xfs
'

say() { echo "guestkernel: $*" >&2; }
fail() { echo "guestkernel: $*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-/var/cache}/longhorn-guest-kernel
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
out=$cache/$(sha256sum <"$0" | cut -c1-16)
if [ -d "$out" ]; then
	echo "$out"
	exit 0
fi

# install_tools installs the tools that are missing.
install_tools() {
	local missing=() p
	for p in "${tools[@]}"; do
		[ "$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null)" = "install ok installed" ] || missing+=("$p")
	done
	[ ${#missing[@]} -eq 0 ] && return
	[ "$(id -u)" = 0 ] || fail "run as root to install: ${missing[*]}"
	say "installing ${missing[*]}"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# from_suite runs apt-get with the packages of $suite on this machine's mirror, and with lists of its own.
from_suite() {
	apt-get -o Dir::State="$work/apt" -o Dir::Cache="$work/apt" -o Dir::Etc::sourcelist="$work/sources.list" \
		-o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root -qq "$@"
}

# fetch unpacks the source of the kernel and the configuration of the package user-mode-linux into $work.
fetch() {
	local mirror
	mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Component: main' |
		awk -v own="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$1 == own { print $2; exit }')
	[ -n "$mirror" ] || fail "this machine's apt has no source of its own release; run apt-get update"
	mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
	echo "deb $mirror $suite main" >"$work/sources.list"
	(cd "$work" && from_suite update && from_suite download "$source" user-mode-linux) >"$work/log" 2>&1 || {
		tail -5 "$work/log" >&2
		fail "apt-get does not find $source in $suite"
	}
	dpkg-deb --fsys-tarfile "$work"/"$source"_*.deb | tar -xO "./usr/src/$source.tar.xz" | tar -xJ -C "$work"
	dpkg-deb --fsys-tarfile "$work"/user-mode-linux_*.deb | tar -xO ./usr/share/doc/user-mode-linux/config.gz | zcat >"$work/config"
	rm "$work"/*.deb
}

# configure writes the configuration into the source: Debian's, without unused modules, and with the additional options.
configure() {
	local m
	cp "$work/config" .config
	{
		echo "Module Size Used by"
		for m in $used; do echo "$m 1 0"; done
	} >"$work/lsmod"
	make ARCH=um LSMOD="$work/lsmod" localmodconfig </dev/null
	for m in "${enabled[@]}"; do scripts/config -e "$m"; done
	for m in "${modules[@]}"; do scripts/config -m "$m"; done
	for m in "${disabled[@]}"; do scripts/config -d "$m"; done
	scripts/config -e DEBUG_INFO_NONE --set-str LOCALVERSION -longhorn
	make ARCH=um olddefconfig
	for m in "${enabled[@]}" "${modules[@]}"; do
		grep -q "^CONFIG_$m=[ym]" .config || { echo "CONFIG_$m is not in the configuration"; return 1; }
	done
}

# build builds the kernel and its modules into $work/out.
build() {
	nice -n 5 make ARCH=um -j"$(nproc)" linux modules
	mkdir "$work/out"
	make ARCH=um INSTALL_MOD_PATH="$work/mod" INSTALL_MOD_STRIP=1 modules_install
	mv "$work/mod/lib/modules" "$work/out/modules"
	rm -f "$work"/out/modules/*/{build,source}
	strip -o "$work/out/linux" linux
	cp .config "$work/out/config"
}

start=$SECONDS
work=$cache/work
rm -rf "$work"
mkdir "$work"
install_tools
say "building a kernel for guests of $source; some minutes, the first time only (log: $work/log)"
fetch
(
	cd "$work/$source"
	configure
	build
) >"$work/log" 2>&1 & # "if ! (...)" would switch "set -e" off inside
wait $! || {
	tail -20 "$work/log" >&2
	fail "the build failed (log: $work/log)"
}
mv "$work/out" "$out"
rm -rf "$work"
say "kernel made in $((SECONDS - start)) s"
echo "$out"
