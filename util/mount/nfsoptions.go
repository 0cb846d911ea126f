package mount

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultNFSOptions are the options of a mount if nothing else is requested.
//
//   - vers=4.2, else 4.1. From 4.1 on, and with noresvport, the client opens a new connection from another port. The
//     node's connection tracking would treat a connection from the same port as the old one, and send it to the former
//     place of the server.
//   - softerr, else soft (before Linux 5.2): a call finally fails, with ETIMEDOUT, or with EIO for soft.
//   - timeo=300,retrans=5: a call fails when its connection is broken and timeo × (1 + retrans) = 180 seconds have
//     passed since the call started. On TCP the kernel adds timeo each time and sends no NFSv4 call twice over one
//     connection, so only the product counts. It must be longer than a failover may take: until the client notices that
//     a silent server is gone (its lease time, at least 18 seconds), until another serves (up to 60), until the client
//     connects again (pauses of up to half the lease time). That is 150 seconds with a lease of 60.
//
// How soon the client notices a silent server does not depend on these options. As soon as the client knows the
// server's lease time, sunrpc sets the connection's keepalive to a third of it (at least 6 seconds), with 3 probes. It
// sets the TCP_USER_TIMEOUT to the sum.
var DefaultNFSOptions = NFSOptions{data: []string{"vers=4.2", "noresvport", "softerr", "timeo=300", "retrans=5"}, fallback: true}

// nfsPort is the servers' port if the options name no other.
const nfsPort = 2049

// NFSOptions are options of an NFS mount.
type NFSOptions struct {
	// flags are the flags of mount(2). data is the rest, which the file system parses.
	flags uintptr
	data  []string
	// fallback: older versions and soft may be tried, too. fixed: no other version may be tried.
	fallback, fixed bool
}

// genericOptions are the options that mount(2) takes as flags; off clears a flag.
var genericOptions = map[string]struct {
	flag uintptr
	off  bool
}{
	"ro": {unix.MS_RDONLY, false}, "rw": {unix.MS_RDONLY, true},
	"nosuid": {unix.MS_NOSUID, false}, "suid": {unix.MS_NOSUID, true},
	"nodev": {unix.MS_NODEV, false}, "dev": {unix.MS_NODEV, true},
	"noexec": {unix.MS_NOEXEC, false}, "exec": {unix.MS_NOEXEC, true},
	"noatime": {unix.MS_NOATIME, false}, "atime": {unix.MS_NOATIME, true},
	"nodiratime": {unix.MS_NODIRATIME, false}, "diratime": {unix.MS_NODIRATIME, true},
	"relatime": {unix.MS_RELATIME, false}, "norelatime": {unix.MS_RELATIME, true},
	"strictatime": {unix.MS_STRICTATIME, false}, "nostrictatime": {unix.MS_STRICTATIME, true},
	"sync": {unix.MS_SYNCHRONOUS, false}, "async": {unix.MS_SYNCHRONOUS, true},
	"dirsync": {unix.MS_DIRSYNC, false},
}

// idleOptions are for programs that mount, not for the kernel.
var idleOptions = []string{"defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser"}

// ownOptions name the two ends of the connection. A user may not set them.
var ownOptions = []string{"addr", "clientaddr", "mountaddr", "mounthost"}

var nfsOption = regexp.MustCompile(`^[a-z0-9_]+(=[A-Za-z0-9_.:/-]+)?$`)

var nfsVersion = regexp.MustCompile(`^4(\.[0-2])?$`)

// ParseNFSOptions parses a list of options, separated by commas, that replaces the default ones. An error is a clause
// that follows the value.
func ParseNFSOptions(text string) (NFSOptions, error) {
	var o NFSOptions
	version := ""
	for _, option := range strings.Split(text, ",") {
		option = strings.TrimSpace(option)
		name, value, _ := strings.Cut(option, "=")
		switch {
		case !nfsOption.MatchString(option):
			return NFSOptions{}, fmt.Errorf("contains %q, which is not a mount option", option)
		case slices.Contains(ownOptions, name):
			return NFSOptions{}, fmt.Errorf("contains the option %s, which only the driver may set", name)
		case o.setFlag(option), slices.Contains(idleOptions, option):
			continue
		case name == "vers" || name == "nfsvers":
			if !nfsVersion.MatchString(value) || version != "" {
				return NFSOptions{}, fmt.Errorf("contains %q; it must contain vers=4, vers=4.0, vers=4.1 or vers=4.2 once", option)
			}
			version = value
		case name == "port" && portOf(value) == 0:
			return NFSOptions{}, fmt.Errorf("contains %q, which is not a valid port", option)
		}
		o.data = append(o.data, option)
	}
	if version == "" {
		return NFSOptions{}, fmt.Errorf("must contain vers=4, vers=4.0, vers=4.1 or vers=4.2: shares are served only over NFS version 4")
	}
	return o, nil
}

func portOf(value string) uint16 {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

func (o *NFSOptions) setFlag(option string) bool {
	generic, ok := genericOptions[option]
	switch {
	case !ok:
	case generic.off:
		o.flags &^= generic.flag
	default:
		o.flags |= generic.flag
	}
	return ok
}

// nfsOptionNames are the options of an NFS mount that are allowed as mount options, in addition to those that any file
// system accepts. Options of one group exclude each other: a requested option replaces the others. A name without a
// group is its own group.
var nfsOptionNames = map[string]string{
	"hard": "hard", "soft": "hard", "softerr": "hard",
	"vers": "vers", "nfsvers": "vers",
	"resvport": "resvport", "noresvport": "resvport",
	"ac": "ac", "noac": "ac", "cto": "cto", "nocto": "cto",
	"sharecache": "sharecache", "nosharecache": "sharecache",
	"rdirplus": "rdirplus", "nordirplus": "rdirplus",
	"softreval": "softreval", "nosoftreval": "softreval",
	"migration": "migration", "nomigration": "migration",
	"trunkdiscovery": "trunkdiscovery", "notrunkdiscovery": "trunkdiscovery",
	"fsc": "fsc", "nofsc": "fsc", "lock": "lock", "nolock": "lock", "intr": "intr", "nointr": "intr",
	"timeo": "", "retrans": "", "rsize": "", "wsize": "", "bsize": "", "proto": "", "port": "", "sec": "", "nconnect": "", "max_connect": "",
	"acregmin": "", "acregmax": "", "acdirmin": "", "acdirmax": "", "actimeo": "", "lookupcache": "", "local_lock": "", "write": "",
	"minorversion": "",
}

func groupOf(name string) (group string, known bool) {
	group, known = nfsOptionNames[name]
	if group == "" {
		group = name
	}
	return group, known
}

// WithMountOptions adds mount options, for example from a StorageClass. Each replaces the present option for the same
// property. refused are options that cannot be used to mount a share, such as options for a file system on a device, or
// another version. They have no effect.
func (o NFSOptions) WithMountOptions(options []string) (with NFSOptions, refused []string) {
	o.data = slices.Clone(o.data)
	for _, list := range options {
		for _, option := range strings.Split(list, ",") {
			option = strings.TrimSpace(option)
			if option == "" || o.setFlag(option) || slices.Contains(idleOptions, option) {
				continue
			}
			if !o.replace(option) {
				refused = append(refused, option)
			}
		}
	}
	return o, refused
}

// replace puts an option of an NFS mount in place of the options of its group. It returns false if it is not an option
// of the NFS client, or if a share cannot have it.
func (o *NFSOptions) replace(option string) bool {
	name, value, _ := strings.Cut(option, "=")
	group, known := groupOf(name)
	switch {
	case !known, !nfsOption.MatchString(option), slices.Contains(ownOptions, name):
		return false
	case group == "vers" && !nfsVersion.MatchString(value), name == "port" && portOf(value) == 0:
		return false
	case group == "vers":
		o.fixed, option = true, "vers="+value
	}
	isSame := func(other string) bool {
		name, _, _ := strings.Cut(other, "=")
		of, _ := groupOf(name)
		return of == group
	}
	at := slices.IndexFunc(o.data, isSame)
	if at < 0 {
		o.data = append(o.data, option)
		return true
	}
	o.data = append(append(o.data[:at:at], option), slices.DeleteFunc(slices.Clone(o.data[at+1:]), isSame)...)
	return true
}

func (o NFSOptions) port() uint16 {
	for _, option := range o.data {
		if name, value, _ := strings.Cut(option, "="); name == "port" {
			return portOf(value)
		}
	}
	return nfsPort
}

// variants are the lists to try, best first. "vers=4" requests the latest version that both support; the kernel would
// interpret it as 4.0.
func (o NFSOptions) variants() (lists [][]string) {
	for _, data := range o.versions() {
		lists = append(lists, data)
		if o.fallback && slices.Contains(data, "softerr") {
			lists = append(lists, with(data, "softerr", "soft"))
		}
	}
	return lists
}

func (o NFSOptions) versions() [][]string {
	if o.fallback && !o.fixed {
		return [][]string{o.data, with(o.data, "vers=4.2", "vers=4.1")}
	}
	i := slices.IndexFunc(o.data, func(option string) bool { return option == "vers=4" || option == "nfsvers=4" })
	if i < 0 || slices.ContainsFunc(o.data, func(option string) bool { return strings.HasPrefix(option, "minorversion=") }) {
		return [][]string{o.data}
	}
	return [][]string{with(o.data, o.data[i], "vers=4.2"), with(o.data, o.data[i], "vers=4.1"), with(o.data, o.data[i], "vers=4.0")}
}

// with is a list with one option in place of another, which it must have.
func with(data []string, old, option string) []string {
	data = slices.Clone(data)
	data[slices.Index(data, old)] = option
	return data
}
