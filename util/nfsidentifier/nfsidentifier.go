// Package nfsidentifier reads and sets the identifier that the kernel's NFS client puts into its name. Servers know the
// client by that name. The package must not know the owner of the identifier.
package nfsidentifier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrUnsupported: the kernel has no such identifier. Its NFS client is not loaded, or the kernel is older than Linux
// 5.3.
var ErrUnsupported = errors.New("the kernel does not support an identifier for its NFS client")

// Kernel is a node's kernel.
type Kernel struct {
	// Root is the root directory of the node's first process, as this process sees it: /proc/1/root of the node. A
	// sysfs shows the network in which it was mounted. So the node's sysfs shows the identifier of the node's network,
	// whatever network this process is in.
	Root string
}

const (
	ofNetwork = "sys/fs/nfs/net/nfs_client/identifier"
	ofModule  = "sys/module/nfs/parameters/nfs4_unique_id"
	// unset is the kernel's text for a missing identifier.
	unset = "(null)"
)

// Identifier is the identifier in the names of new NFS clients of the node's network namespace; "": none. Existing
// clients keep their name. The namespace's identifier takes precedence over the module's. The error is ErrUnsupported
// if neither exists and the kernel has no identifier for network namespaces.
func (k Kernel) Identifier() (string, error) {
	id, err := read(filepath.Join(k.Root, ofNetwork))
	isOld := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isOld || id != "" {
		return id, err
	}
	id, err = read(filepath.Join(k.Root, ofModule))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	case id == "" && isOld:
		return "", ErrUnsupported
	}
	return id, nil
}

// Set sets the identifier of the node's network if neither the network nor the module has one, and returns the
// resulting identifier. If two processes set it at once, both may find none. The last one counts, and a later
// Identifier returns the right one.
func (k Kernel) Set(id string) (string, error) {
	holds, err := k.Identifier()
	if err != nil || holds != "" {
		return holds, err
	}
	// The value has no line feed: some kernels would take it into the name.
	f, err := os.OpenFile(filepath.Join(k.Root, ofNetwork), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return "", fmt.Errorf("set the NFS client's identifier: %w", err)
	}
	_, err = f.WriteString(id)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("set the NFS client's identifier: %w", err)
	}
	return k.Identifier()
}

// read is the kernel's text, without the line feed that it adds.
func read(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the NFS client's identifier: %w", err)
	}
	text := strings.TrimSuffix(string(data), "\n")
	if text == unset {
		text = ""
	}
	return text, nil
}
