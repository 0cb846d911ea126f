package mounts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/instance/proto"
)

// fill writes random blocks to a new replica and returns the hash of all of it.
func (d *volatileDisk) fill(m *manager, generation int64) [sha256.Size]byte {
	d.t.Helper()
	c, err := m.dial(d.spec(), generation)
	must(d.t, err)
	rng := rand.New(rand.NewPCG(uint64(len(d.path)), uint64(d.path[len("/mnt/p")])))
	p := make([]byte, blockBytes)
	for range 100 {
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		must(d.t, c.WriteAt(context.Background(), p, rng.Int64N(blockCount)*blockBytes, false))
	}
	must(d.t, c.Flush(context.Background()))
	must(d.t, c.Close())
	return d.hash(m, generation+1)
}

// hash reads all of a replica that is served.
func (d *volatileDisk) hash(m *manager, generation int64) [sha256.Size]byte {
	d.t.Helper()
	c, err := m.dial(d.spec(), generation)
	must(d.t, err)
	all := make([]byte, replicaBytes)
	must(d.t, c.ReadAt(context.Background(), all, 0))
	must(d.t, c.Close())
	return sha256.Sum256(all)
}

// findDisk is what the manager does: it looks for the disk with a UUID on all paths.
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

// permutations of the numbers below n.
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

// Four disks change places in every way there is, while their replicas are served. Each replica is served with the content it had,
// from wherever its disk is now, and refused where another disk is.
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
	if len(all) != 24 {
		t.Fatalf("%d permutations", len(all))
	}
	for _, p := range all {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			for _, path := range paths {
				must(t, unix.Unmount(h.at(path), unix.MNT_DETACH))
			}
			for i, to := range p {
				disks[i].mountOn(disks[i].device, paths[to])
			}
			generation++
			for _, d := range disks {
				moveReplica(t, h, m, d, paths, generation, want[d.name])
			}
			if d := before.differs(usageOf(t, beneath)); d != "" {
				t.Errorf("beneath the disks: %s", d)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// moveReplica brings one replica to where its disk is now.
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
		must(t, err)
		s, err := m.ReplicaStart(ctx, d.specAt(old))
		if err != nil || s.GetPhase() != proto.Phase_PHASE_ERROR || s.GetReason() != "DiskMismatch" {
			t.Errorf("%s is served from %s, where another disk is: %v, %v", d.name, old, s, err)
		}
		_, err = m.ReplicaCreate(ctx, d.specAt(old))
		if reason(err) != "DiskMismatch" {
			t.Errorf("%s was made in %s, where another disk is: %v", d.name, old, err)
		}
	}
	m.serve(d.spec())
	if got := d.hash(m, generation); got != want {
		t.Errorf("%s is served from %s with other content", d.name, now)
	}
}

// fsid is what statfs(2) gives for the identity of a file system.
func fsid(t *testing.T, path string) unix.Fsid {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(path, &st))
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
	must(t, err)
	must(t, unix.Unmount(d.at(d.path), 0))
	d.isFree()
	run(t, "xfs_admin", "-U", "generate", d.device)
	d.device = h.attach(d.image) // as after a reboot that found the devices in another order
	d.mount()
	if after := fsid(t, d.at(d.path)); after == before {
		t.Fatalf("the file system has the identity %v as before, so this shows nothing", after)
	}
	m.serve(d.spec())
	if got := d.hash(m, 3); got != want {
		t.Error("it is served with other content")
	}
}
