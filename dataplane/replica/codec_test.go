package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

func fullMeta() Meta {
	return Meta{
		UID: "6e4b3f0c-1b1d-4f3e-9d5d-0a1b2c3d4e5f", Volume: "vol", Name: "vol-r-0a1b2c3d", SizeBytes: 3 << 40, RegionBytes: 16 << 20,
		Generation: 7, Session: "s-7", Epoch: membership.NewEpoch(6, 2, []string{"a", "b"}), Rebuilding: true, BootID: "boot", Clean: true, GrowsTo: 4 << 40,
		Layers: 9,
	}
}

func TestMetaRoundTrip(t *testing.T) {
	b, err := fullMeta().encode()
	require.NoError(t, err)
	got, err := decodeMeta(b)
	require.NoError(t, err)
	assert.Equal(t, fullMeta(), got)
	v := reflect.ValueOf(got)
	for i := range v.NumField() {
		assert.False(t, v.Field(i).IsZero(), "field %s is zero, so the test says nothing of it", v.Type().Field(i).Name)
	}
}

func TestMetaThatNoReplicaCanHaveIsNotEncoded(t *testing.T) {
	for name, change := range map[string]func(*Meta){
		"zero value":                              func(m *Meta) { *m = Meta{} },
		"uid with a slash":                        func(m *Meta) { m.UID = "a/b" },
		"no volume":                               func(m *Meta) { m.Volume = "" },
		"name with a slash":                       func(m *Meta) { m.Name = "a/b" },
		"size not a multiple of a block":          func(m *Meta) { m.SizeBytes++ },
		"region size not a power of two":          func(m *Meta) { m.RegionBytes += 512 },
		"regions too many":                        func(m *Meta) { m.RegionBytes = 4 << 20 },
		"growth to less":                          func(m *Meta) { m.GrowsTo = m.SizeBytes - 512 },
		"growth to other regions":                 func(m *Meta) { m.GrowsTo = 8 << 40 },
		"generation without session":              func(m *Meta) { m.Session = "" },
		"session without generation":              func(m *Meta) { m.Generation, m.Epoch = 0, membership.Epoch{} },
		"epoch of a generation never admitted":    func(m *Meta) { m.Epoch.Generation = 8 },
		"epoch with members not sorted":           func(m *Meta) { m.Epoch.Members = []string{"b", "a"} },
		"epoch without members":                   func(m *Meta) { m.Epoch.Members = nil },
		"members without an epoch":                func(m *Meta) { m.Epoch = membership.Epoch{Members: []string{"a"}} },
		"negative generation":                     func(m *Meta) { m.Generation = -1 },
		"negative generation of a list":           func(m *Meta) { m.Layers = -1 },
		"session longer than any engine makes it": func(m *Meta) { m.Session = string(bytes.Repeat([]byte("s"), 257)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := fullMeta()
			change(&m)
			b, err := m.encode()
			assert.Error(t, err, "encoded as %d bytes", len(b))
		})
	}
}

// The version alone says to releases that know no layers that the data is not one file.
func TestOnlyMetadataWithLayersHasVersion2(t *testing.T) {
	for layers, want := range map[int64]byte{0: 1, 1: 2, 9: 2} {
		m := fullMeta()
		m.Layers = layers
		b, err := m.encode()
		require.NoError(t, err)
		assert.Equal(t, want, b[8], "generation %d", layers)
		assert.Equal(t, layers > 0, bytes.Contains(b, []byte(`"layers"`)))
	}
}

func TestMetadataWithAnotherVersionIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name    string
		layers  int64
		version byte
		want    error
	}{
		{"version 3", 9, 3, errNewVersion},
		{"version 0", 0, 0, errNewVersion},
		{"version 1 with layers", 9, 1, errTorn},
		{"version 2 without layers", 0, 2, errTorn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := fullMeta()
			m.Layers = tc.layers
			b, err := m.encode()
			require.NoError(t, err)
			b[8] = tc.version
			b = binary.LittleEndian.AppendUint32(b[:len(b)-4], crc32.Checksum(b[:len(b)-4], castagnoli))
			_, err = decodeMeta(b)
			assert.ErrorIs(t, err, tc.want)
		})
	}
}

func TestRegionBytesKeepsMapsSmall(t *testing.T) {
	for _, tc := range []struct{ size, want int64 }{
		{512, 4 << 20},
		{1 << 30, 4 << 20},
		{1 << 40, 4 << 20},
		{1<<40 + 512, 8 << 20},
		{2 << 40, 8 << 20},
		{16 << 40, 64 << 20},
	} {
		assert.Equal(t, tc.want, RegionBytes(tc.size), tc.size)
	}
	got := intentFileBytes(maxRegions)
	assert.LessOrEqual(t, got, int64(64<<10), "the largest map takes %d bytes", got)
}

func TestIntentImageRoundTrip(t *testing.T) {
	want := []int64{0, 7, 8, 4031, 4032, 9998, 9999}
	m := newIntentImage("uid", 4<<20, 10000)
	for _, r := range want {
		m.set(r, true)
	}
	m.set(500, true)
	m.set(500, false)
	got, err := decodeIntentImage(slices.Clone(m.b), "uid", 4<<20, 10000)
	require.NoError(t, err)
	assert.Equal(t, want, got.marked())
}

func FuzzDecodeMeta(f *testing.F) {
	b, err := fullMeta().encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(metaMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			if !errors.Is(err, errNotOurs) && !errors.Is(err, errTorn) && !errors.Is(err, errNewVersion) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		again, err := m.encode()
		require.NoError(t, err)
		back, err := decodeMeta(again)
		require.NoError(t, err)
		if !reflect.DeepEqual(back, m) {
			t.Fatalf("%+v became %+v", m, back)
		}
	})
}

func FuzzDecodeIntentImage(f *testing.F) {
	m := newIntentImage("uid", 4<<20, 5000)
	m.set(4500, true)
	f.Add(slices.Clone(m.b), int64(5000))
	f.Add(slices.Clone(m.b[:600]), int64(1))
	f.Fuzz(func(t *testing.T, b []byte, regions int64) {
		regions = 1 + (regions&0x7fffffff)%maxRegions
		got, err := decodeIntentImage(b, "uid", 4<<20, regions)
		if err != nil {
			return
		}
		rebuilt := newIntentImage("uid", 4<<20, regions)
		for _, r := range got.marked() {
			if r < 0 || r >= regions {
				t.Fatalf("mark %d of %d regions", r, regions)
			}
			rebuilt.set(r, true)
		}
		if !bytes.Equal(rebuilt.b, b) {
			t.Fatal("accepted content that is not made of marks alone")
		}
	})
}
