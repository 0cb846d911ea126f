// Package machine is the inside of one machine of the cluster: the first process of its PID namespace, the mounts that
// it creates before anything else runs, and the processes that it keeps running. It must not know what these processes
// are or how the cluster is built; it reads a Spec.
//
//	Start (outside)                       Run (inside, process 1)
//	 clone PID, mount, UTS, IPC ───────▶  wait for the go byte
//	 put it in its cgroups
//	 record pid and start time
//	 write the go byte ────────────────▶  new cgroup namespace, exec itself again,
//	                                      mounts, pivot_root, processes
//
// Without the go byte the first process exits, so no machine exists without a record.
package machine

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/longhorn-lep/longhorn-manager/devcluster/dm"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// Spec describes a machine. The outside writes it as JSON, and the inside reads it.
type Spec struct {
	// Hostname is the host name in its UTS namespace.
	Hostname string `json:"hostname"`
	// Root is nil for a machine that shares the mounts of the real machine. A private copy of these mounts would keep
	// file systems busy that the real machine unmounts.
	Root *Root `json:"root,omitempty"`
	// Guest is set for a machine with a kernel of its own, which RunGuest sets up.
	Guest     *Guest    `json:"guest,omitempty"`
	Processes []Process `json:"processes"`
}

// Root describes the machine's own file system tree. The tree is an overlay: its lower layer is the root of the real
// machine, and its upper layer is a tmpfs. The mounts below are on top of it.
type Root struct {
	// Dir is an empty directory of the real machine on which the tree is mounted.
	Dir string `json:"dir"`
	// Tmpfs are directories on which an empty tmpfs is mounted.
	Tmpfs []string `json:"tmpfs"`
	// Binds are directories and files of the real machine, by their path inside.
	Binds []Bind `json:"binds"`
	// Files are written into the overlay: content by path.
	Files map[string]string `json:"files"`
	// Covers are files that are mounted over others. So the content that the kernel shows there is hidden, and writes
	// stay inside.
	Covers map[string]string `json:"covers"`
	// Disks are file system images that are mounted through loop devices. A guest has disks of its own.
	Disks []Disk `json:"disks"`
}

// Bind makes From of the real machine visible at To inside.
type Bind struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Disk is a file system image.
type Disk struct {
	Image  string `json:"image"`
	FSType string `json:"fsType"`
	To     string `json:"to"`
}

// Guest is the part of a Spec that only a machine with a kernel of its own has, in addition to its root. The lower
// layer of the root is then the root with which the kernel was started.
type Guest struct {
	Network netns.Guest `json:"network"`
	// ModulesDir has the kernel's modules, by release. Modules are the modules to load.
	ModulesDir string   `json:"modulesDir"`
	Modules    []string `json:"modules"`
	// State is a device with an ext4 file system. Kept are directories on it, by their path inside, that still exist
	// at the next start. Fresh are directories that are emptied.
	State string            `json:"state"`
	Kept  map[string]string `json:"kept"`
	Fresh map[string]string `json:"fresh"`
	// Shared are directories of the real machine to which the guest writes.
	Shared []Bind `json:"shared"`
	// Disks are disks with a behaviour that can be changed: slow, failing and so on.
	Disks []GuestDisk `json:"disks"`
	// Links are symbolic links to create: target by path.
	Links map[string]string `json:"links"`
}

// GuestDisk is a disk of a guest, with a file system.
type GuestDisk struct {
	dm.Disk
	FSType string `json:"fsType"`
	To     string `json:"to"`
}

// Process is a process that the machine starts again each time it exits.
type Process struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	// Log is the file to which its output is appended. It is a path inside the machine.
	Log string `json:"log"`
	// After is a TCP address (host:port) or unix socket path that must accept a connection before the process is first
	// started; "": no such condition.
	After string `json:"after,omitempty"`
	// Listener: the process gets the listening socket that Start has, as descriptor 3.
	Listener bool `json:"listener,omitempty"`
	// Orders is the path inside the machine of a file that may contain an Order; "": no such file.
	Orders string `json:"orders,omitempty"`
}

// Write stores the spec at path.
func (s Spec) Write(path string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machine spec: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("write machine spec: %w", err)
	}
	return nil
}

// ReadSpec reads a spec that Write stored.
func ReadSpec(path string) (Spec, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("read machine spec: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return Spec{}, fmt.Errorf("parse machine spec %s: %w", path, err)
	}
	return s, nil
}
