package mounts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// fill writes random blocks to a new replica and returns the hash of its whole content.
func (d *volatileDisk) fill(m *manager, generation int64) [sha256.Size]byte {
	d.t.Helper()
	c, err := m.dial(d.spec(), generation)
	require.NoError(d.t, err)
	rng := rand.New(rand.NewPCG(uint64(len(d.path)), uint64(d.path[len("/mnt/p")])))
	p := make([]byte, blockBytes)
	for range 100 {
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		require.NoError(d.t, c.WriteAt(context.Background(), p, rng.Int64N(blockCount)*blockBytes, false))
	}
	require.NoError(d.t, c.Flush(context.Background()))
	require.NoError(d.t, c.Close())
	return d.hash(m, generation+1)
}

// hash reads the whole content of a replica that is served.
func (d *volatileDisk) hash(m *manager, generation int64) [sha256.Size]byte {
	d.t.Helper()
	sum, err := d.tryHash(m, generation)
	require.NoError(d.t, err)
	return sum
}

// tryHash fails if the replica stops serving during the read.
func (d *volatileDisk) tryHash(m *manager, generation int64) (sum [sha256.Size]byte, err error) {
	c, err := m.dial(d.spec(), generation)
	if err != nil {
		return sum, err
	}
	all := make([]byte, replicaBytes)
	err = errors.Join(c.ReadAt(context.Background(), all, 0), c.Close())
	return sha256.Sum256(all), err
}

// serveAndHash starts the replica and reads its whole content. A disk that came back to its own path may still be shown
// as served, although the manager is about to notice that it was away. Then a reader is cut off, and connects again
// like an engine.
func (d *volatileDisk) serveAndHash(m *manager, generation int64) (sum [sha256.Size]byte) {
	d.t.Helper()
	require.NoError(d.t, poll("replica "+d.name+" cannot be read", func() (err error) {
		m.serve(d.spec())
		sum, err = d.tryHash(m, generation)
		return err
	}))
	return sum
}

// findDisk does the manager's work: it searches all paths for the disk with a UUID.
func findDisk(t testing.TB, h *host, paths []string, uuid string) string {
	t.Helper()
	for _, p := range paths {
		text, err := os.ReadFile(filepath.Join(h.at(p), "longhorn-disk.cfg"))
		var config struct {
			UUID string `json:"diskUUID"`
		}
		if err == nil && json.Unmarshal(text, &config) == nil && config.UUID == uuid {
			return p
		}
	}
	t.Fatalf("disk %s is nowhere", uuid)
	return ""
}

// permutations returns all orders of the numbers below n.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			q := append(append(append([]int{}, p[:at]...), n-1), p[at:]...)
			all = append(all, q)
		}
	}
	return all
}

// Four disks exchange their places in every possible way, while their replicas are served. Each replica is served with
// its own content from the present place of its disk, and refused where another disk is.
func TestDisksThatChangePlacesAreNeverTakenForEachOther(t *testing.T) {
	need(t)
	h := newHost(t)
	var disks []*volatileDisk
	var paths []string
	for number, fsType := range []string{"ext4", "xfs", "ext4", "xfs"} {
		d := h.newDisk(number+1, fsType)
		disks, paths = append(disks, d), append(paths, d.path)
	}
	m := newManager(h)
	beneath := filepath.Join(h.base, "mnt")
	before := usageOf(t, beneath)
	want := map[string][sha256.Size]byte{}
	generation := int64(1)
	for _, d := range disks {
		m.create(d.spec())
		m.serve(d.spec())
		want[d.name] = d.fill(m, generation)
	}
	generation += 2
	all := permutations(len(disks))
	require.Len(t, all, 24)
	for _, p := range all {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			for _, path := range paths {
				require.NoError(t, unix.Unmount(h.at(path), unix.MNT_DETACH))
			}
			for i, to := range p {
				disks[i].mountOn(disks[i].device, paths[to])
			}
			generation++
			for _, d := range disks {
				moveReplica(t, h, m, d, paths, generation, want[d.name])
			}
			assert.Empty(t, before.differs(usageOf(t, beneath)), "beneath the disks")
		})
		if t.Failed() {
			return
		}
	}
}

// moveReplica starts one replica at the present place of its disk.
func moveReplica(t *testing.T, h *host, m *manager, d *volatileDisk, paths []string, generation int64, want [sha256.Size]byte) {
	t.Helper()
	ctx := context.Background()
	now := findDisk(t, h, paths, d.uuid)
	old := d.path
	d.path = now
	if now != old {
		_, err := m.until("loss of "+old, noticeLimit, func(s *proto.State) bool {
			return replicaOf(s, d.name).GetPhase() != proto.Phase_PHASE_RUNNING
		})
		require.NoError(t, err)
		s, err := m.ReplicaStart(ctx, d.specAt(old))
		require.NoError(t, err, "%s is served from %s: %v", d.name, old, s)
		assert.Equal(t, proto.Phase_PHASE_ERROR, s.GetPhase(), "%s is served from %s: %v", d.name, old, s)
		assert.Equal(t, "DiskMismatch", s.GetReason(), "%s is served from %s: %v", d.name, old, s)
		_, err = m.ReplicaCreate(ctx, d.specAt(old))
		assert.Equal(t, "DiskMismatch", reason(err), "%s was made in %s: %v", d.name, old, err)
	}
	assert.Equal(t, want, d.serveAndHash(m, generation), "%s is served from %s with other content", d.name, now)
}

// fsid returns the file system identity that statfs(2) reports.
func fsid(t *testing.T, path string) unix.Fsid {
	t.Helper()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(path, &st))
	return st.Fsid
}

func TestAnXFSWithAnotherIdentityIsStillTheDisk(t *testing.T) {
	need(t)
	h := newHost(t)
	d := h.newDisk(1, "xfs")
	m := newManager(h)
	m.create(d.spec())
	m.serve(d.spec())
	want, before := d.fill(m, 1), fsid(t, d.at(d.path))
	_, err := m.ReplicaStop(context.Background(), &proto.ReplicaRef{Name: d.name})
	require.NoError(t, err)
	require.NoError(t, unix.Unmount(d.at(d.path), 0))
	d.isFree()
	run(t, "xfs_admin", "-U", "generate", d.device)
	d.device = h.attach(d.image) // as after a reboot that found the devices in another order
	d.mount()
	after := fsid(t, d.at(d.path))
	require.NotEqual(t, before, after, "the file system has the identity %v as before, so this shows nothing", after)
	m.serve(d.spec())
	assert.Equal(t, want, d.hash(m, 3), "it is served with other content")
}
