package holder

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// mountsEnv tells a serving process where Client.Mounts is.
const mountsEnv = "LONGHORN_HOLDER_MOUNTS"

// mounts is a mount namespace beside that of the container, in which the node's mounts of volumes stay. In the container's nothing may be
// mounted that lies on a device which is served from here: were all its processes killed while it held the last mount of a file system, the
// kernel would write that out with no process left to answer. Here a thread holds the namespace that has none of the connections of
// devices, so these end before it does.
//
//	node -- propagates --> container (a serving process detaches its volumes' mounts)
//	     -- propagates --> this one  (all is there, for threads that a serving process has for such disks)
type mounts struct{ thread *thread.Thread }

// keepMounts must be called before the first device is made.
func keepMounts() (*mounts, error) {
	t, err := thread.New(thread.Options{Name: thread.Aside, OwnMounts: true})
	if err != nil {
		return nil, fmt.Errorf("keep the mounts of disks on volumes: %w", err)
	}
	// Slave: what happens here must not propagate to where the container's mounts are shared.
	if err := t.Do(func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") }); err != nil {
		t.Close()
		return nil, fmt.Errorf("keep the mounts of disks on volumes to ourselves: %w", err)
	}
	return &mounts{t}, nil
}

// path is the namespace's file, "" if there is none.
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
