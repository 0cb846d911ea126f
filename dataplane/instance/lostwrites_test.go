package instance

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
	"github.com/longhorn-lep/longhorn-manager/disk"
)

// memMember is a replica in memory.
type memMember struct {
	*memfs.FS
	name string
	boot string
	open *replica.Replica
}

func newMemMember(t *testing.T, name string) *memMember {
	t.Helper()
	m := &memMember{FS: memfs.New(), name: name, boot: "boot-1"}
	m.MkdirAll(path.Join("/disk", disk.ReplicasDirName))
	text, err := disk.EncodeConfig(disk.NewConfig("disk", diskUUID))
	require.NoError(t, err)
	dir, err := m.OpenDir("/disk")
	require.NoError(t, err)
	file, err := dir.OpenFile(disk.ConfigFileName, fsys.CreateNew)
	require.NoError(t, err)
	require.NoError(t, file.WriteAt(text, 0))
	require.NoError(t, file.Sync())
	require.NoError(t, dir.Sync())
	m.onDisk(t, func(d *replica.Disk) { require.NoError(t, d.Create(m.dir(), m.spec())) })
	return m
}

func (m *memMember) dir() string { return path.Join("/disk", disk.ReplicasDirName, m.name) }

func (m *memMember) spec() replica.Spec {
	return replica.Spec{UID: "uid-" + m.name, Volume: "vol", Name: m.name, SizeBytes: 64 * mib}
}

func (m *memMember) onDisk(t *testing.T, do func(*replica.Disk)) {
	t.Helper()
	d, err := replica.OpenDisk(m.FS, "/disk", diskUUID)
	require.NoError(t, err)
	defer d.Close()
	do(d)
}

// serve opens the replica as a newly started process does.
func (m *memMember) serve(t *testing.T) *replica.Replica {
	t.Helper()
	m.onDisk(t, func(d *replica.Disk) {
		r, err := d.Open(m.dir(), m.spec(), replica.Options{BootID: m.boot})
		require.NoError(t, err)
		t.Cleanup(func() { _ = r.Close(context.Background()) })
		m.open = r
	})
	return m.open
}

// succeed starts an engine that takes over a device with users, and waits until it has started or failed.
func succeed(t *testing.T, generation int64, recorded membership.Epoch, line layers.Line, rs ...*replica.Replica) *engine.Engine {
	t.Helper()
	cfg := engine.Config{
		Name: "e", Volume: "vol", Generation: generation, Session: fmt.Sprintf("s%d", generation), SizeBytes: rs[0].Size(), Recorded: recorded,
		QuietPeriod: time.Hour, HasUsers: true, Line: line,
	}
	byName := map[string]*replica.Replica{}
	for _, r := range rs {
		byName[r.Name()] = r
		cfg.Members = append(cfg.Members, engine.Member{Name: r.Name(), Local: true})
	}
	cfg.Connect = func(ctx context.Context, m engine.Member) (engine.Replica, error) {
		return byName[m.Name].Admit(ctx, cfg.Generation, cfg.Session)
	}
	e := engine.Start(cfg)
	t.Cleanup(func() { _ = e.StopForce(context.Background()) })
	require.Eventually(t, func() bool {
		if p := e.State().ProposedEpoch; !p.IsZero() {
			_ = e.RecordEpoch(cfg.Session, p, nil)
		}
		return e.State().Phase != engine.PhaseStarting
	}, patience, time.Millisecond, "the start does not end")
	return e
}

// snapshotOf takes the first snapshot of a volume through its first engine, and returns the line.
func snapshotOf(t *testing.T, e *engine.Engine) layers.Line {
	t.Helper()
	line, p, err := layers.Line{}.Intend(7, "")
	require.NoError(t, err)
	_, err = e.Snapshot(t.Context(), "s1", line, p)
	require.NoError(t, err)
	line, err = line.Ready(p)
	require.NoError(t, err)
	require.NoError(t, e.SetLine(t.Context(), "s1", line))
	return line
}

// The process of an engine and its replicas exits while users of the device have unsynced writes. The result of these
// writes decides whether the successor may serve the users.
func TestUsersOfAKeptDeviceAreServedOnlyWithAllTheyWrote(t *testing.T) {
	kill := func(_ *testing.T, m *memMember) { m.Kill() }
	writeOutFails := func(_ *testing.T, m *memMember) {
		m.Kill()
		m.LoseUnsynced("data.img")
	}
	syncFails := func(t *testing.T, m *memMember) {
		m.FailSync("data.img", 1)
		_ = m.open.Close(t.Context()) // it syncs, and records that it failed
		m.Kill()
	}
	powerFails := func(_ *testing.T, m *memMember) {
		m.Kill()
		m.Crash(rand.New(rand.NewPCG(1, 2)))
		m.boot = "boot-2"
	}
	nothingKnown := func(_ *testing.T, m *memMember) {
		m.Kill()
		m.boot = ""
	}
	mountedAgain := func(_ *testing.T, m *memMember) {
		m.Kill()
		m.MountAgain()
	}
	for _, tc := range []struct {
		name     string
		a, b     func(*testing.T, *memMember) // if b is nil, there is one member
		snapshot bool                         // the volume has one
		lost     bool
	}{
		{name: "killed → served", a: kill},
		{name: "killed, two members → served", a: kill, b: kill},
		{name: "killed, then a write-out fails → not served", a: writeOutFails, lost: true},
		{name: "a sync fails, then killed → not served", a: syncFails, lost: true},
		{name: "the power fails → not served", a: powerFails, lost: true},
		{name: "the power of both fails → not served", a: powerFails, b: powerFails, lost: true},
		{name: "a write-out of one of two fails → served", a: writeOutFails, b: kill},
		{name: "the power of one fails → served", a: powerFails, b: kill},
		{name: "killed, the boot is not known → served", a: nothingKnown},
		{name: "the power of one fails, the boot of the other is not known → served", a: powerFails, b: nothingKnown},
		{name: "killed after a snapshot → served", a: kill, snapshot: true},
		{name: "killed after a snapshot, then mounted again → not served", a: mountedAgain, snapshot: true, lost: true},
		{name: "killed after a snapshot, one mounted again → served", a: mountedAgain, b: kill, snapshot: true},
		{name: "the power fails after a snapshot → not served", a: powerFails, snapshot: true, lost: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ends := []func(*testing.T, *memMember){tc.a}
			members := []*memMember{newMemMember(t, "a")}
			if tc.b != nil {
				ends, members = append(ends, tc.b), append(members, newMemMember(t, "b"))
			}
			serve := func() (rs []*replica.Replica) {
				for _, m := range members {
					rs = append(rs, m.serve(t))
				}
				return rs
			}
			e, api, apiDown := startEngine(t, 1, membership.Epoch{}, serve()...)
			want := bytes.Repeat([]byte{7}, 4096)
			users := e.Backend()
			require.NoError(t, users.Flush(t.Context()))
			var line layers.Line
			if tc.snapshot {
				line = snapshotOf(t, e)
			}
			require.NoError(t, users.WriteAt(t.Context(), want, mib, false))
			apiDown()
			e.Interrupt()
			_ = e.StopForce(t.Context())
			for i, end := range ends {
				end(t, members[i])
			}
			for generation := int64(2); generation < 4; generation++ {
				e = succeed(t, generation, *api, line, serve()...)
				s := e.State()
				if !tc.lost {
					require.Equal(t, engine.PhaseRunning, s.Phase, s.Message)
					break
				}
				require.Equal(t, engine.ReasonWritesLost, s.Reason, s.Message)
				assert.Error(t, e.Backend().Flush(t.Context()), "a user takes for synced what is lost")
				require.NoError(t, e.StopForce(t.Context()))
				for _, m := range members { // this process is killed before it aborts the device
					m.Kill()
				}
				*api = s.Epoch
			}
			if !tc.lost {
				got := make([]byte, len(want))
				require.NoError(t, e.Backend().ReadAt(t.Context(), got, mib))
				assert.True(t, bytes.Equal(want, got), "what was written is missing")
				require.NoError(t, e.Backend().Flush(t.Context()))
			}
		})
	}
}
