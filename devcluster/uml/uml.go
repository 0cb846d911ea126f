// Package uml runs a user-mode Linux kernel, which is an ordinary process of this machine, as the first process of a
// machine. It knows which files the kernel needs, shows it this machine read-only, starts it and adds disks to it. It
// must not know the programs in the guest, or nodes.
//
// The kernel's root is the real machine's own tree (hostfs), so the guest has the programs of the real machine. The
// process runs in a mount namespace in which everything except the paths in Spec.Writable is read-only. So even a
// privileged program in the guest that mounts hostfs again has no further access.
package uml

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Kernel is a user-mode Linux kernel.
type Kernel struct {
	// Program is an ELF executable.
	Program string
	// ModulesDir has a directory of modules for each release.
	ModulesDir string
}

// KernelIn returns the kernel in a directory: its program is the file "linux" and its modules are below "modules".
// Without a directory, it is the kernel of Debian's package user-mode-linux.
func KernelIn(dir string) Kernel {
	if dir == "" {
		return Kernel{Program: "/usr/bin/linux.uml", ModulesDir: "/usr/lib/uml/modules"}
	}
	return Kernel{Program: filepath.Join(dir, "linux"), ModulesDir: filepath.Join(dir, "modules")}
}

// scratch is a tmpfs of the process itself. The guest's memory is a file in it. consoleFile is the socket for commands
// to the kernel; its path must be short.
const (
	scratch     = "/dev/shm"
	umid        = "guest"
	consoleFile = scratch + "/uml/" + umid + "/mconsole"
)

// Spec describes a guest. The outside writes it as JSON, and Run reads it.
type Spec struct {
	// Program is the program of the kernel.
	Program   string `json:"program"`
	MemoryMiB int    `json:"memoryMiB"`
	// Taps are tap devices in the network namespace of the process. In the guest their names are vec0 and so on.
	Taps []string `json:"taps"`
	// Disks are image files in the order of their letters: the first is /dev/ubda in the guest.
	Disks []string `json:"disks"`
	// Writable are the directories to which the guest may write through hostfs; the images are in one of them.
	Writable []string `json:"writable"`
	// Init is the guest's first program and its arguments, to which the kernel adds further arguments.
	Init []string `json:"init"`
	// Preload is the library of BuildPreload, or "".
	Preload string `json:"preload,omitempty"`
}

// DiskDevice returns the guest's name for its disk with the index, from 0.
func DiskDevice(index int) string {
	return "/dev/ubd" + string(rune('a'+index))
}

// MaxDisks is how many disks a kernel supports.
const MaxDisks = 16

// CheckPath returns an error for a path that the kernel would misread in its
// command line.
func CheckPath(path string) error {
	if strings.ContainsAny(path, " ,:=") {
		return fmt.Errorf("path %s: a guest kernel cannot take one with a space, comma, colon or equals sign", path)
	}
	return nil
}

// args returns the command line of the kernel.
func (s Spec) args() []string {
	args := []string{
		s.Program, fmt.Sprintf("mem=%dM", s.MemoryMiB),
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"uml_dir=" + scratch + "/uml/", "umid=" + umid,
		// The first terminal is the log; the kernel opens no others.
		"con=null", "ssl=null", "con0=null,fd:1",
	}
	for i, tap := range s.Taps {
		args = append(args, fmt.Sprintf("vec%d:transport=tap,ifname=%s,depth=128,gro=1", i, tap))
	}
	for i, image := range s.Disks {
		args = append(args, fmt.Sprintf("ubd%d=%s", i, image))
	}
	args = append(args, "init="+s.Init[0], "--")
	return append(args, s.Init[1:]...)
}

// Write stores the spec at path.
func (s Spec) Write(path string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode guest spec: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("write guest spec: %w", err)
	}
	return nil
}

func readSpec(path string) (Spec, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("read guest spec: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return Spec{}, fmt.Errorf("parse guest spec %s: %w", path, err)
	}
	return s, nil
}
