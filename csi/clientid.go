package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
	"github.com/longhorn-lep/longhorn-manager/util/nfsidentifier"
)

// Servers know the node's NFS client by a name (util/nfsidentifier). The kernel creates the name at the first mount
// of a server, and it stays as long as that server has a mount. So the process that mounts a share sets the identifier
// in the name just before the mount. That process does not know the cluster. So the node's daemon leaves a file with
// the identifier to set, and reads in another file which identifier is in force.
//
//	daemon ── wanted ──► plugin ──► sysfs of the node's network ──► names of later clients
//	daemon ◄── held ──── plugin
//
//	shares mounted   held before   identifier now   held after
//	none             any           X                X
//	some             X             X                X
//	some             anything else X                "", not known: a client may have another name
//
// The last row occurs in three cases: a plugin is updated while shares are mounted, an administrator changes the
// identifier, or a mount could not wait for the daemon. It ends with the first mount at a time when no share is
// mounted. Until then, the daemon knows too little about which client belongs to which node, but never something wrong.
const (
	// wantedTimeout is how long the first mount waits if the daemon has not written a wanted identifier yet: both
	// start when the node starts. A daemon of an earlier release never writes it. No later mount waits.
	wantedTimeout  = 5 * time.Second
	wantedInterval = 100 * time.Millisecond
)

// clientID manages the identifier of the node's NFS client. It only informs: it makes no mount fail.
type clientID struct {
	kernel nfsidentifier.Kernel
	// dir is types.NFSClientDirectory of the node, as this process sees it.
	dir string
	// load loads the kernel's NFS client.
	load func() error
	// isUsed reports whether a share is mounted on this node.
	isUsed  func() (bool, error)
	timeout time.Duration
	log     *logrus.Entry

	mu          sync.Mutex
	waited      bool   // guarded by mu, like lastMessage
	lastMessage string // about a failure or about the identifier
}

func newClientID(o NodeOptions, mounts *mount.System) *clientID {
	init := filepath.Join(o.HostProc, "1")
	staged := stagedBelow(o)
	return &clientID{
		kernel: nfsidentifier.Kernel{Root: filepath.Join(init, "root")}, dir: filepath.Join(init, "root", types.NFSClientDirectory),
		load: mount.NodeNFS{Proc: init}.Load, timeout: wantedTimeout, log: o.Log,
		isUsed: func() (bool, error) {
			servers, err := mounts.Servers(staged)
			return len(servers) > 0, err
		},
	}
}

// beforeMount is called before each mount of a share.
func (c *clientID) beforeMount() {
	c.mu.Lock()
	defer c.mu.Unlock()
	holds, err := c.set()
	if err == nil && holds != "" && !types.IsNFSClientID(holds) {
		err = fmt.Errorf("the identifier %q of the node's NFS client cannot be recognised in a client's name", holds)
	}
	if err != nil {
		holds = ""
	}
	err = errors.Join(err, c.recordHeld(holds))
	switch {
	case err != nil && c.lastMessage != err.Error():
		c.lastMessage = err.Error()
		c.log.WithError(err).Warn("Mounting a share although the identifier of this node's NFS client is not known")
	case err == nil && c.lastMessage != holds:
		c.lastMessage = holds
		c.log.WithField("identifier", holds).Info("Servers of shares know this node's NFS client by this identifier")
	}
}

// set returns the identifier in the next client's name. It sets the identifier first if there is none.
func (c *clientID) set() (string, error) {
	holds, err := c.kernel.Identifier()
	if errors.Is(err, nfsidentifier.ErrUnsupported) {
		if loading := c.load(); loading != nil {
			return "", loading
		}
		// loading it may set an identifier, as the administrator configured it
		holds, err = c.kernel.Identifier()
	}
	if err != nil || holds != "" {
		return holds, err
	}
	wanted, err := c.wanted()
	if err != nil {
		return "", err
	}
	return c.kernel.Set(wanted)
}

// wanted is the identifier that the daemon wants to be set. The first call waits for it.
func (c *clientID) wanted() (string, error) {
	for end := time.Now().Add(c.timeout); ; time.Sleep(wantedInterval) {
		data, err := os.ReadFile(filepath.Join(c.dir, types.NFSClientWanted))
		id := strings.TrimSpace(string(data))
		if err == nil && types.IsNFSClientID(id) {
			return id, nil
		}
		if !c.waited && time.Now().Before(end) {
			continue
		}
		c.waited = true
		if err == nil {
			err = fmt.Errorf("the value %q is invalid", id)
		}
		return "", fmt.Errorf("the node's daemon has not provided the identifier for the NFS client: %w", err)
	}
}

// recordHeld writes a file for the daemon: the identifier that the NFS clients of all shares have, on condition that
// the next client gets the present identifier as well.
func (c *clientID) recordHeld(holds string) error {
	path := filepath.Join(c.dir, types.NFSClientHeld)
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the former identifier of the NFS client: %w", err)
	}
	isRecorded := err == nil && string(before) == holds
	if isRecorded {
		return nil
	}
	if used, err := c.isUsed(); err != nil || used {
		holds = ""
	}
	if err := os.MkdirAll(c.dir, 0o750); err != nil {
		return fmt.Errorf("record the NFS client's identifier: %w", err)
	}
	if err := os.WriteFile(path+".new", []byte(holds), 0o600); err != nil {
		return fmt.Errorf("record the NFS client's identifier: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record the NFS client's identifier: %w", err)
	}
	return nil
}
