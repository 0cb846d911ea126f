// Package machine is the inside of one machine of the cluster: the first
// process of its PID namespace, the mounts it makes before anything else runs,
// and the processes it keeps alive. It must not know what these processes are
// or how the cluster is put together; a Spec tells it.
//
//	Start (outside)                       Run (inside, process 1)
//	 clone PID, mount, UTS, IPC ───────▶  wait for the go byte
//	 put it in its cgroups
//	 record pid and start time
//	 write the go byte ────────────────▶  new cgroup namespace, exec itself again,
//	                                      mounts, pivot_root, processes
//
// Without the go byte the first process ends, so no machine exists without a
// record.
package machine

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/longhorn-lep/longhorn-manager/devcluster/dm"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// Spec says what a machine is made of. It is written as JSON by the outside
// and read by the inside.
type Spec struct {
	// Hostname of its UTS namespace.
	Hostname string `json:"hostname"`
	// Root is nil for a machine that shares the mounts of the real one: a
	// private copy of these would keep file systems busy that the real machine
	// unmounts.
	Root *Root `json:"root,omitempty"`
	// Guest is set for a machine with a kernel of its own, which RunGuest sets up.
	Guest     *Guest    `json:"guest,omitempty"`
	Processes []Process `json:"processes"`
}

// Root describes a file system tree of the machine's own: an overlay whose
// lower layer is the root of the real machine and whose upper one is a tmpfs,
// with the mounts below on top.
type Root struct {
	// Dir is an empty directory of the real machine to mount on.
	Dir string `json:"dir"`
	// Tmpfs are directories that get an empty tmpfs.
	Tmpfs []string `json:"tmpfs"`
	// Binds are directories and files of the real machine, by path inside.
	Binds []Bind `json:"binds"`
	// Files are written into the overlay, content by path.
	Files map[string]string `json:"files"`
	// Covers are files that are laid over others, so that what the kernel
	// shows there stays hidden and what is written there stays inside.
	Covers map[string]string `json:"covers"`
	// Disks are file system images to be mounted through loop devices. A guest
	// has disks of its own.
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

// Guest is what a machine with a kernel of its own has besides its root, whose
// lower layer is then the root that the kernel was started with.
type Guest struct {
	Network netns.Guest `json:"network"`
	// ModulesDir has the kernel's modules, by release; Modules are loaded.
	ModulesDir string   `json:"modulesDir"`
	Modules    []string `json:"modules"`
	// State is a device with an ext4 file system. Kept are directories on it, by
	// path inside, that are there again at the next start; Fresh those that are
	// emptied.
	State string            `json:"state"`
	Kept  map[string]string `json:"kept"`
	Fresh map[string]string `json:"fresh"`
	// Shared are directories of the real machine that the guest writes.
	Shared []Bind `json:"shared"`
	// Disks can be made slow, made to fail and the like.
	Disks []GuestDisk `json:"disks"`
	// Links are symbolic links to make, target by path.
	Links map[string]string `json:"links"`
}

// GuestDisk is a disk of a guest, with a file system.
type GuestDisk struct {
	dm.Disk
	FSType string `json:"fsType"`
	To     string `json:"to"`
}

// Process is kept running: when it ends it is started again.
type Process struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	// Log gets its output, appended. It is a path inside the machine.
	Log string `json:"log"`
	// After is a TCP address (host:port) or unix socket path that must accept
	// a connection before the process is first started; "" for none.
	After string `json:"after,omitempty"`
	// Listener hands it the listening socket that Start was given, as descriptor 3.
	Listener bool `json:"listener,omitempty"`
	// Orders is a file, by its path inside, that may have an Order; "" for none.
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

// ReadSpec reads what Write stored.
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
