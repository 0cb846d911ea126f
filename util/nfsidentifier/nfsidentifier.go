// Package nfsidentifier reads and sets the identifier that the kernel's NFS client puts into the name by which servers know it. It must not know whose
// identifier it is.
package nfsidentifier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrUnsupported: the kernel has no such identifier: its NFS client is not loaded, or it is older than Linux 5.3.
var ErrUnsupported = errors.New("the kernel has no identifier for its NFS client")

// Kernel is a node's kernel.
type Kernel struct {
	// Root is the root directory of the node's first process, as this process sees it: /proc/1/root of the node. A sysfs shows the network in which
	// it was mounted, so the node's shows the identifier of the node's network, whatever network this process is in.
	Root string
}

const (
	ofNetwork = "sys/fs/nfs/net/nfs_client/identifier"
	ofModule  = "sys/module/nfs/parameters/nfs4_unique_id"
	// unset is how the kernel prints that there is none.
	unset = "(null)"
)

// Identifier is what new clients of the node's network have in their names; "": none. Clients that exist keep their name, whatever is set later.
// That of the network counts before that of the module. The error is ErrUnsupported where there is none and the kernel does not know the former.
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

// Set sets the identifier of the node's network if there is none, neither of the network nor of the module, and returns what holds then. Two that
// set it at once may both find none: the last one counts, and an Identifier read afterwards is right.
func (k Kernel) Set(id string) (string, error) {
	holds, err := k.Identifier()
	if err != nil || holds != "" {
		return holds, err
	}
	// Without a line feed: there are kernels that would take it into the name.
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

// read is what the kernel prints, without the line feed that it adds.
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
