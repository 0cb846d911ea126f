package csi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Names as the snapshotter gives them.
const (
	testSnapshot   = "snapshot-0b6cf6a4-4b6e-4d0c-9b1d-1f0d3c5f2a11"
	testSnapshotID = "snap://pvc-1/" + testSnapshot
	takeIt         = "snapshot pvc-1 " + testSnapshot
)

func TestCreateSnapshot(t *testing.T) {
	detached := func(f *fakeService) { f.edit(testVolume, volumeIn("detached", "")) }
	// onRead changes the snapshot before the driver's nth read of it.
	onRead := func(f *fakeService, n int, change func(s *Snapshot)) {
		reads := 0
		f.looked = func(f *fakeService, _ string) {
			if reads++; reads == n {
				f.editSnapshot(testSnapshot, change)
			}
		}
	}
	cases := []struct {
		name  string
		given func(f *fakeService)
		code  codes.Code
		text  string
		ready bool
		calls []string
	}{
		{
			name:  "new → requested, and waited for until it is taken and ready",
			given: func(f *fakeService) { detached(f); onRead(f, 5, taken) }, ready: true, calls: []string{takeIt},
		},
		{
			name: "taken, and not stored by every member → answered at once, not ready",
			given: func(f *fakeService) {
				detached(f)
				onRead(f, 3, func(s *Snapshot) { taken(s); s.Ready = false })
			},
			calls: []string{takeIt},
		},
		{name: "taken by an earlier call → nothing is requested", given: func(f *fakeService) { detached(f); f.editSnapshot(testSnapshot, taken) }, ready: true},
		{
			name: "requested by another process between the two calls → found",
			given: func(f *fakeService) {
				detached(f)
				f.fail[takeIt] = ErrConflict
				onRead(f, 2, taken)
			},
			ready: true, calls: []string{takeIt},
		},
		{
			name: "the name is one of another volume's snapshot → already exists",
			given: func(f *fakeService) {
				detached(f)
				f.edit("pvc-2", volumeIn("detached", ""))
				f.editSnapshot(testSnapshot, func(s *Snapshot) { taken(s); s.Volume = "pvc-2" })
			},
			code: codes.AlreadyExists, text: "of volume pvc-2", calls: []string{takeIt},
		},
		{
			name:  "not taken in time → aborted, with the reason",
			given: detached, code: codes.Aborted, text: "is not taken yet: the volume is being attached", calls: []string{takeIt},
		},
		{
			name: "an attempt failed → aborted before the time is over, with the reason",
			given: func(f *fakeService) {
				detached(f)
				onRead(f, 3, func(s *Snapshot) { s.Failed, s.NotReadyMessage = true, "disk d of node n: no space" })
				f.fail["get "+testVolume] = errors.New("not read")
			},
			code: codes.Aborted, text: "disk d of node n: no space", calls: []string{takeIt},
		},
		{
			name: "an earlier attempt failed, and the next one succeeds → taken",
			given: func(f *fakeService) {
				detached(f)
				f.editSnapshot(testSnapshot, func(s *Snapshot) { s.Failed, s.NotReadyMessage = true, "the engine stopped" })
				onRead(f, 4, func(s *Snapshot) { taken(s); s.Failed = false })
			},
			ready: true,
		},
		{
			name: "one of this name is being deleted → aborted",
			given: func(f *fakeService) {
				detached(f)
				f.editSnapshot(testSnapshot, func(s *Snapshot) { taken(s); s.Removed = true })
			},
			code: codes.Aborted, text: "is being deleted",
		},
		{
			name: "the volume's state does not allow it → aborted, with the manager's words",
			given: func(f *fakeService) {
				detached(f)
				f.fail[takeIt] = &serviceError{class: ErrConflict, text: "volume pvc-1 is being deleted"}
			},
			code: codes.Aborted, text: "volume pvc-1 is being deleted", calls: []string{takeIt},
		},
		{name: "no volume → not found", given: func(*fakeService) {}, code: codes.NotFound, text: "pvc-1", calls: []string{takeIt}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService()
				c.given(f)
				s := &controllerServer{core: coreOver(f)}
				start := time.Now()
				response, err := s.CreateSnapshot(t.Context(), &csipb.CreateSnapshotRequest{
					Name: testSnapshot, SourceVolumeId: testVolume, Parameters: map[string]string{"type": "snap"},
				})
				wantCode(t, "create", err, c.code)
				assert.Equal(t, c.calls, f.made())
				if err != nil {
					require.ErrorContains(t, err, c.text)
					assert.LessOrEqual(t, time.Since(start), s.core.wait)
					return
				}
				want := &csipb.Snapshot{
					SnapshotId: testSnapshotID, SourceVolumeId: testVolume, SizeBytes: 64 << 20,
					CreationTime: timestamppb.New(takenAt), ReadyToUse: c.ready,
				}
				assert.Equal(t, want.String(), response.Snapshot.String())
			})
		})
	}
}

// TestAFailedAttemptFreesTheSnapshotter: its workers are few, and a snapshot that cannot be taken must not occupy one for
// the whole time that a call may take.
func TestAFailedAttemptFreesTheSnapshotter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeService()
		f.edit(testVolume, volumeIn("detached", ""))
		f.editSnapshot(testSnapshot, func(s *Snapshot) { s.Failed = true })
		start := time.Now()
		_, err := coreOver(f).takeSnapshot(t.Context(), snapshotID{testVolume, testSnapshot}, nil)
		wantCode(t, "take", err, codes.Aborted)
		assert.Less(t, time.Since(start), 10*time.Second)
	})
}

// TestASnapshotWaitsNoLongerThanItsCaller: the answer says why, which the caller's own deadline would not.
func TestASnapshotWaitsNoLongerThanItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeService()
		f.edit(testVolume, volumeIn("detached", ""))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := coreOver(f).takeSnapshot(ctx, snapshotID{testVolume, testSnapshot}, nil)
		wantCode(t, "take", err, codes.Aborted)
		require.NoError(t, ctx.Err())
	})
}

func TestSnapshotParameters(t *testing.T) {
	for _, c := range []struct {
		name   string
		params map[string]string
		labels map[string]string
		text   string
	}{
		{"snap → labels", map[string]string{"type": "snap", "app": "db"}, map[string]string{"type": "snap", "app": "db"}, ""},
		{"reserved keys → no labels", map[string]string{"type": "snap", "csi.storage.k8s.io/volumesnapshot/name": "x=y"}, map[string]string{"type": "snap"}, ""},
		{"no type → what to write", nil, nil, "requests a backup, and this release has no backups; the VolumeSnapshotClass must have the parameter type: snap"},
		{"bak → what to write", map[string]string{"type": "bak"}, nil, "this release has no backups; the VolumeSnapshotClass must have the parameter type: snap"},
		{"bs, as bak", map[string]string{"type": "bs"}, nil, "this release has no backups"},
		{"bi → what to write", map[string]string{"type": "bi"}, nil, "this release has no backing images; the VolumeSnapshotClass must have"},
		{"unknown → what to write", map[string]string{"type": "snapshot"}, nil, `value "snapshot" is not supported; the VolumeSnapshotClass must have`},
		{"'=' in a value → refused", map[string]string{"type": "snap", "a": "b=c"}, nil, "must not contain '='"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeService()
			f.instant = true
			f.edit(testVolume, volumeIn("detached", ""))
			s := &controllerServer{core: coreOver(f)}
			_, err := s.CreateSnapshot(t.Context(), &csipb.CreateSnapshotRequest{Name: "s", SourceVolumeId: testVolume, Parameters: c.params})
			if c.text != "" {
				wantCode(t, "create", err, codes.InvalidArgument)
				require.ErrorContains(t, err, c.text)
				assert.Empty(t, f.made())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.labels, f.snapshots["s"].Labels)
		})
	}
}

func TestDeleteSnapshot(t *testing.T) {
	const deleteIt = "unsnapshot pvc-1 " + testSnapshot
	has := func(f *fakeService) {
		f.edit(testVolume, volumeIn("detached", ""))
		f.editSnapshot(testSnapshot, taken)
	}
	for _, c := range []struct {
		name  string
		id    string
		given func(f *fakeService)
		code  codes.Code
		text  string
		calls []string
	}{
		{"there → requested", testSnapshotID, has, codes.OK, "", []string{deleteIt}},
		{"gone → done", testSnapshotID, func(*fakeService) {}, codes.OK, "", nil},
		{"gone in between → done", testSnapshotID, func(f *fakeService) { has(f); f.fail[deleteIt] = ErrNotFound }, codes.OK, "", []string{deleteIt}},
		{"deleted, and its space is not free yet → done", testSnapshotID, func(f *fakeService) {
			has(f)
			f.editSnapshot(testSnapshot, func(s *Snapshot) { s.Removed = true })
		}, codes.OK, "", nil},
		{"of another volume → not touched", "snap://pvc-2/" + testSnapshot, has, codes.OK, "", nil},
		{"refused → aborted", testSnapshotID, func(f *fakeService) { has(f); f.fail[deleteIt] = ErrConflict }, codes.Aborted, testSnapshot, []string{deleteIt}},
		{"the manager is away → unknown", testSnapshotID, func(f *fakeService) { has(f); f.fail["get "+testSnapshot] = errors.New("away") }, codes.Unavailable, "away", nil},
		{"no id → invalid", "", has, codes.InvalidArgument, "snapshot id is missing", nil},
		{"a text that is no id → done", "reallyfakesnapshotid", has, codes.OK, "", nil},
		{"a backup → refused", "bak://pvc-1/backup-0123456789abcdef", has, codes.InvalidArgument, "names a backup, and this release has no backups; nothing was deleted", nil},
		{"a backup of old → refused", "bs://pvc-1/backup-0123456789abcdef", has, codes.InvalidArgument, "names a backup", nil},
		{"a backing image → refused", "bi://backing?backingImage=b", has, codes.InvalidArgument, "names a backing image", nil},
		{"no snapshot in it → refused", "snap://pvc-1", has, codes.InvalidArgument, "must have the form snap://<volume>/<snapshot>", nil},
		{"a path in it → refused", "snap://pvc-1/a/../b", has, codes.InvalidArgument, "must have the form", nil},
		{"an unknown scheme → refused", "disk://pvc-1/s", has, codes.InvalidArgument, "must have the form", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeService()
			c.given(f)
			s := &controllerServer{core: coreOver(f)}
			_, err := s.DeleteSnapshot(t.Context(), &csipb.DeleteSnapshotRequest{SnapshotId: c.id})
			wantCode(t, "delete", err, c.code)
			assert.Equal(t, c.calls, f.made())
			if err != nil {
				assert.ErrorContains(t, err, c.text)
			}
		})
	}
}

func TestAVolumeWithVolumeSnapshotsIsNotDeleted(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(f *fakeService)
		code  codes.Code
		text  string
	}{
		{"taken for a VolumeSnapshot → refused", func(f *fakeService) { f.editSnapshot("s1", taken) }, codes.FailedPrecondition, "its VolumeSnapshots would be lost with it; delete them first (s1)"},
		{"many → some are named", func(f *fakeService) {
			for _, name := range []string{"s5", "s4", "s3", "s2", "s1"} {
				f.editSnapshot(name, taken)
			}
		}, codes.FailedPrecondition, "(s1, s2, s3 and 2 more)"},
		{"deleted, and its space is not free yet → deleted", func(f *fakeService) {
			f.editSnapshot("s1", func(s *Snapshot) { taken(s); s.Removed = true })
		}, codes.OK, ""},
		{"taken on the page → deleted with the volume", func(f *fakeService) { f.editSnapshot("s1", func(s *Snapshot) { taken(s); s.Labels = nil }) }, codes.OK, ""},
		{"a manager of an earlier release → deleted", func(f *fakeService) { f.fail["snapshots pvc-1"] = ErrInvalid }, codes.OK, ""},
		{"the manager is away → unknown", func(f *fakeService) { f.fail["snapshots pvc-1"] = errors.New("away") }, codes.Unavailable, "away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeService()
			f.instant = true
			f.edit(testVolume, volumeIn("detached", ""))
			c.given(f)
			s := &controllerServer{core: coreOver(f)}
			_, err := s.DeleteVolume(t.Context(), &csipb.DeleteVolumeRequest{VolumeId: testVolume})
			wantCode(t, "delete", err, c.code)
			if err != nil {
				assert.ErrorContains(t, err, c.text)
				assert.Empty(t, f.made())
			} else {
				assert.Equal(t, []string{"delete pvc-1"}, f.made())
			}
		})
	}
}

func TestSnapshotName(t *testing.T) {
	long := strings.Repeat("a", 128)
	for text, want := range map[string]string{
		testSnapshot: testSnapshot,
		"daily.1":    "daily.1",
		// printf %s 'Daily 1' | sha512sum
		"Daily 1": "daily-1-eb5b153c4e07e9aa",
		"日":       "snap-4298b70d831ef7be",
	} {
		assert.Equal(t, want, snapshotName(text))
	}
	assert.Len(t, snapshotName(long), 63)
	assert.NotEqual(t, snapshotName(long), snapshotName(long+"a"))
	assert.NotEqual(t, snapshotName("A"), snapshotName("a"))
	for _, text := range []string{testSnapshot, "Daily 1", "日", long} {
		id, err := parseSnapshotID(snapshotID{testVolume, snapshotName(text)}.String())
		require.NoError(t, err)
		assert.Equal(t, snapshotID{testVolume, snapshotName(text)}, id)
	}
}

func TestListSnapshots(t *testing.T) {
	f := newFakeService()
	for volume, names := range map[string][]string{"pvc-1": {"b", "a"}, "pvc-2": nil, "pvc-3": {"c", "e", "d"}} {
		f.edit(volume, volumeIn("detached", ""))
		for _, name := range names {
			f.editSnapshot(name, func(s *Snapshot) { taken(s); s.Volume = volume })
		}
	}
	f.editSnapshot("early", func(s *Snapshot) { s.Volume = "pvc-1" })
	f.editSnapshot("removed", func(s *Snapshot) { taken(s); s.Removed = true })
	s := &controllerServer{core: coreOver(f)}
	list := func(req *csipb.ListSnapshotsRequest) ([]string, string) {
		t.Helper()
		response, err := s.ListSnapshots(t.Context(), req)
		require.NoError(t, err)
		ids := []string{}
		for _, e := range response.Entries {
			ids = append(ids, e.Snapshot.SnapshotId)
		}
		return ids, response.NextToken
	}
	all := []string{"snap://pvc-1/a", "snap://pvc-1/b", "snap://pvc-3/c", "snap://pvc-3/d", "snap://pvc-3/e"}
	for _, c := range []struct {
		name string
		req  *csipb.ListSnapshotsRequest
		want []string
	}{
		{"all → by volume and name, without those that are not taken or deleted", &csipb.ListSnapshotsRequest{}, all},
		{"of a volume", &csipb.ListSnapshotsRequest{SourceVolumeId: "pvc-3"}, all[2:]},
		{"of a volume that is gone → none", &csipb.ListSnapshotsRequest{SourceVolumeId: "pvc-9"}, []string{}},
		{"of no volume's name → none", &csipb.ListSnapshotsRequest{SourceVolumeId: "a/b"}, []string{}},
		{"by id", &csipb.ListSnapshotsRequest{SnapshotId: "snap://pvc-3/d"}, all[3:4]},
		{"by id, and of its volume", &csipb.ListSnapshotsRequest{SnapshotId: "snap://pvc-3/d", SourceVolumeId: "pvc-3"}, all[3:4]},
		{"by id, and of another volume → none", &csipb.ListSnapshotsRequest{SnapshotId: "snap://pvc-3/d", SourceVolumeId: "pvc-1"}, []string{}},
		{"by id, with another volume in it → none", &csipb.ListSnapshotsRequest{SnapshotId: "snap://pvc-1/d"}, []string{}},
		{"by id, not taken → none", &csipb.ListSnapshotsRequest{SnapshotId: "snap://pvc-1/early"}, []string{}},
		{"by id, deleted → none", &csipb.ListSnapshotsRequest{SnapshotId: "snap://pvc-1/removed"}, []string{}},
		{"by an id that cannot be read → none", &csipb.ListSnapshotsRequest{SnapshotId: "none-exist-id"}, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, next := list(c.req)
			assert.Equal(t, c.want, got)
			assert.Empty(t, next)
		})
	}
	for most := int32(1); most <= 6; most++ {
		var got []string
		token, pages := "", 0
		for {
			ids, next := list(&csipb.ListSnapshotsRequest{MaxEntries: most, StartingToken: token})
			got, pages = append(got, ids...), pages+1
			if token = next; token == "" {
				break
			}
		}
		assert.Equal(t, all, got, "pages of %d", most)
		assert.Equal(t, (5+int(most)-1)/int(most), pages, "pages of %d", most)
	}
	f.listed = nil
	list(&csipb.ListSnapshotsRequest{MaxEntries: 1})
	assert.Equal(t, []string{"pvc-1"}, f.listed, "a page read volumes that it does not show")
	for _, token := range []string{"b", "after:", "after:b", "after:bak://pvc-1/b"} {
		_, err := s.ListSnapshots(t.Context(), &csipb.ListSnapshotsRequest{StartingToken: token})
		wantCode(t, token, err, codes.Aborted)
	}
	_, err := s.ListSnapshots(t.Context(), &csipb.ListSnapshotsRequest{MaxEntries: -1})
	wantCode(t, "negative", err, codes.InvalidArgument)
	f.fail["list"] = errors.New("away")
	_, err = s.ListSnapshots(t.Context(), &csipb.ListSnapshotsRequest{})
	assert.Equal(t, codes.Unavailable, status.Code(err))
}
