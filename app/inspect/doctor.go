package inspect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/controller/node"
	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/kmod"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// moduleTimeout limits the time of the check whether the node has a kernel module.
const moduleTimeout = 10 * time.Second

// NodeFacts are the results of a check of a node.
type NodeFacts struct {
	// Node is the name of the node. Namespace is the present or future namespace of the installation.
	Node, Namespace string
	// Kernel is the kernel release as in uname -r. RootUser: root ran the check.
	Kernel   string
	RootUser bool
	// Environment and DataPlane are the input of the node controller's conditions.
	Environment node.Environment
	DataPlane   node.DataPlane
	// MissingCommands are commands that are necessary to mount volumes but are not in PATH. Modprobe is the reason
	// why the node has no modprobe; nil: it has one.
	MissingCommands []string
	Modprobe        error
	// Disk describes the directory of the default disk, or its nearest existing ancestor.
	Disk disk.Record
}

// LookAtNode checks this node. root is the path of the node's root directory, path the directory that should become a
// disk. It changes nothing, and loads no module.
func LookAtNode(ctx context.Context, name, namespace, root, path string) NodeFacts {
	f := NodeFacts{Node: name, Namespace: namespace, RootUser: os.Geteuid() == 0}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	f.Environment = node.HostDisks{Root: root}.Environment()
	f.DataPlane = lookAtDevices(ctx, root)
	for _, command := range mount.Commands {
		if _, err := exec.LookPath(command); err != nil {
			f.MissingCommands = append(f.MissingCommands, command)
		}
	}
	_, f.Modprobe = os.Stat(filepath.Join(root, "usr/sbin/modprobe"))
	f.Disk = lookAtDisk(root, path)
	return f
}

// lookAtDevices finds out how an instance manager on this node would create devices.
func lookAtDevices(ctx context.Context, root string) node.DataPlane {
	ctx, cancel := context.WithTimeout(ctx, moduleTimeout)
	defer cancel()
	d := node.DataPlane{Answers: true, DeviceKind: node.DeviceKindNBD, DevicesKept: true}
	if _, err := kernel.Open(filepath.Join(root, "proc/1/ns/net")); err != nil {
		d.WhyNoNBD = err.Error()
		if kmod.Find(ctx, root, "nbd") != nil { // otherwise the instance manager loads it
			d.DeviceKind = "fuse"
		}
	}
	if d.DeviceKind != node.DeviceKindNBD {
		resends, err := fuse.CanResend()
		d.DevicesKept = err == nil && resends
	}
	return d
}

// lookAtDisk scans a directory, or its nearest existing ancestor.
func lookAtDisk(root, path string) disk.Record {
	for ; ; path = filepath.Dir(path) {
		r := disk.Scan(root, map[string]string{"disk": path})["disk"]
		if r.Exists || path == filepath.Dir(path) {
			return r
		}
	}
}

// Check is the result for one requirement of a node.
type Check struct {
	Name string `json:"name"`
	// Severity is empty if the requirement is met.
	Severity explain.Severity `json:"severity,omitempty"`
	Message  string           `json:"message"`
	Next     []explain.Step   `json:"next,omitempty"`
}

// oldestKernel is the oldest kernel that can serve volumes (docs/GETTING-STARTED.md).
var oldestKernel = [2]int{5, 9}

// Examine compares the facts with the requirements of a node. The conditions are the node controller's, and package
// explain provides their meaning.
func Examine(f NodeFacts) []Check {
	checks := []Check{examineUser(f), examineKernel(f.Kernel)}
	checks = append(checks, conditionChecks(f.Namespace, f.Node, node.Conditions(f.Node, f.Environment, f.DataPlane))...)
	return append(checks, examineCommands(f), examineModprobe(f), examineDisk(f))
}

// conditionChecks turns conditions of a node into checks, with the advice of package explain.
func conditionChecks(namespace, name string, list []longhorn.Condition) []Check {
	var checks []Check
	for _, c := range list {
		check := Check{Name: c.Type, Message: c.Message}
		for _, finding := range explain.NodeConditions(namespace, name, list) {
			if len(finding.Why) > 0 && finding.Why[0] == c.Message && finding.Reason == c.Reason {
				check.Severity, check.Next = finding.Severity, finding.Next
			}
		}
		checks = append(checks, check)
	}
	return checks
}

func examineUser(f NodeFacts) Check {
	if f.RootUser {
		return Check{Name: "User", Message: "the user is root"}
	}
	return Check{
		Name: "User", Severity: explain.Warning, Message: "the user is not root: kernel features that only root can see are reported as missing",
		Next: []explain.Step{{Text: "Run it as root on the node, or in the daemon's pod there", Command: "sudo longhorn-manager doctor"}},
	}
}

func examineKernel(release string) Check {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return Check{
			Name: "Kernel", Severity: explain.Warning, Message: fmt.Sprintf("the release of the kernel, %q, cannot be parsed", release),
			Next: []explain.Step{{Text: "Make sure that it is Linux 5.9 or later", Command: "uname -r"}},
		}
	}
	if major < oldestKernel[0] || major == oldestKernel[0] && minor < oldestKernel[1] {
		return Check{
			Name: "Kernel", Severity: explain.Broken, Message: fmt.Sprintf("Linux %s is too old: it must be %d.%d or later", release, oldestKernel[0], oldestKernel[1]),
			Next: []explain.Step{{Text: "Install a later kernel. With 5.14 or later and the module nbd, or with 6.9 or later, devices survive the process that serves them"}},
		}
	}
	return Check{Name: "Kernel", Message: "Linux " + release}
}

func examineCommands(f NodeFacts) Check {
	if len(f.MissingCommands) == 0 {
		return Check{Name: "MountTools", Message: "all commands for file systems are available"}
	}
	return Check{
		Name: "MountTools", Severity: explain.Warning,
		Message: "commands are missing here: " + strings.Join(f.MissingCommands, ", ") + ". The image of this product has them; a node itself does not need them",
		Next:    []explain.Step{{Text: "In a pod of this product: use an image built by deploy/Dockerfile", Command: "apt-get install e2fsprogs xfsprogs util-linux mount"}},
	}
}

func examineModprobe(f NodeFacts) Check {
	if f.Modprobe == nil {
		return Check{Name: "Modprobe", Message: "the node has /usr/sbin/modprobe"}
	}
	return Check{
		Name: "Modprobe", Severity: explain.Info, Message: "the node has no modprobe, so modules are not loaded automatically: " + f.Modprobe.Error(),
		Next: []explain.Step{{Text: "Install it, or list the modules fuse, loop, nbd and nfsv4 in /etc/modules-load.d", Command: "apt-get install kmod"}},
	}
}

// examineDisk asks the scheduler, with the default settings, whether a replica would fit on the default disk.
func examineDisk(f NodeFacts) Check {
	r := f.Disk
	check := Check{Name: "DefaultDisk"}
	room := []explain.Step{{Text: "Mount a separate file system there, or choose another directory with the setting default-data-path", Command: "df -h " + r.Path}}
	byDefault := func(settings.Name) string { return "" }
	fits, _, message := scheduler.DiskSchedulable(f.Node, scheduler.Disk{
		Name: "default", Path: r.Path, Ready: true, StorageMaximum: r.StorageMaximum, StorageAvailable: r.StorageAvailable,
	}, scheduler.SettingsOf(byDefault, &longhorn.VolumeSpec{}))
	switch {
	case r.Err != nil:
		check.Severity, check.Message, check.Next = explain.Broken, fmt.Sprintf("directory %s cannot be checked: %v", r.Path, r.Err), room
	case r.ReadOnly:
		check.Severity, check.Message, check.Next = explain.Broken, fmt.Sprintf("the file system of %s is read-only", r.Path), []explain.Step{{Text: "Mount it for writing", Command: "mount -o remount,rw " + r.Path}}
	case !fits:
		check.Severity, check.Message, check.Next = explain.Warning, message, room
	default:
		check.Message = fmt.Sprintf("%s has %s free of %s (%s)", r.Path, types.SizeText(r.StorageAvailable), types.SizeText(r.StorageMaximum), r.FSType)
	}
	return check
}

// Checks prints the checks.
func (p Printer) Checks(checks []Check) {
	for _, c := range checks {
		severity := string(c.Severity)
		if severity == "" {
			severity = "ok"
		}
		p.hang(fmt.Sprintf("%-8s ", severity), c.Name+": "+c.Message)
		for _, step := range c.Next {
			p.hang("           next  ", step.Text+".")
			if step.Command != "" {
				fmt.Fprintf(p.Out, "                   %s\n", step.Command)
			}
		}
	}
}

// IsBroken reports whether a check found a problem that prevents the node from serving volumes.
func IsBroken(checks []Check) bool {
	for _, c := range checks {
		if c.Severity == explain.Broken {
			return true
		}
	}
	return false
}
