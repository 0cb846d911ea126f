package holder

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// mountsEnv is the environment variable that gives a serving process the value of Client.Mounts.
const mountsEnv = "LONGHORN_HOLDER_MOUNTS"

// mounts is a mount namespace in addition to that of the container. The node's mounts of volumes stay in it. In the
// container's namespace, no file system may be mounted that lies on a device which is served from here. Suppose all
// processes of the container were killed while it held the last mount of such a file system. Then the kernel would
// write the file system out while no process is left to answer. A thread holds the additional namespace. The thread has
// none of the connections of devices, so these close before the namespace does.
//
//	node -- propagates --> container (a serving process detaches its volumes' mounts)
//	     -- propagates --> this one  (has all mounts, for threads that a serving process has for such disks)
type mounts struct{ thread *thread.Thread }

// keepMounts creates the namespace. The caller must call it before the first device is created.
func keepMounts() (*mounts, error) {
	t, err := thread.New(thread.Options{Name: thread.Aside, OwnMounts: true})
	if err != nil {
		return nil, fmt.Errorf("create a mount namespace for disks on volumes: %w", err)
	}
	// Slave: a mount made here must not propagate to the places with which the container shares its mounts.
	if err := t.Do(func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") }); err != nil {
		t.Close()
		return nil, fmt.Errorf("prevent that mounts for disks on volumes propagate to other mount namespaces: %w", err)
	}
	return &mounts{t}, nil
}

// path returns the namespace's file, or "" if there is none.
func (m *mounts) path() string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("/proc/%d/task/%d/ns/mnt", os.Getpid(), m.thread.ID())
}

func (m *mounts) close() {
	if m != nil {
		m.thread.Close()
	}
}
