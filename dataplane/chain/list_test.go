package chain

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// fullList has a value in each field.
func fullList() list {
	return list{uid: "uid-1", generation: 7, chain: layers.Chain{
		Layers: []layers.Layer{
			{Files: []layers.File{1}, Top: layers.Border{Point: layers.Point{Number: 4, Nonce: 1<<64 - 1}, Flushed: true}},
			{From: 6, Files: []layers.File{4, 5}, Top: layers.Border{Point: layers.Point{Number: 8, Nonce: 17}}},
			{From: 8, Files: []layers.File{7}},
		},
		Reverted: layers.Interval{To: 4, By: 6},
		Next:     8,
	}}
}

func TestAListIsReadAsItWasWritten(t *testing.T) {
	b, err := fullList().encode()
	require.NoError(t, err)
	require.Len(t, b, listBytes)
	got, err := decodeList(b, "uid-1")
	require.NoError(t, err)
	assert.Equal(t, fullList(), got)
}

// sum replaces the checksum of a list.
func sum(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[listBytes-4:], crc32.Checksum(b[:listBytes-4], castagnoli))
	return b
}

// withPayload returns a list with another payload and a correct checksum.
func withPayload(b []byte, payload string) []byte {
	clear(b[listHeadBytes:])
	copy(b[listHeadBytes:], payload)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(payload)))
	return sum(b)
}

func TestADamagedOrHostileListIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b []byte) []byte
		want   error
		says   string
	}{
		"empty":                     {func(b []byte) []byte { return nil }, ErrNotOurs, "does not start with LHLAYERS"},
		"zeroes":                    {func(b []byte) []byte { return make([]byte, listBytes) }, ErrNotOurs, "does not start with LHLAYERS"},
		"cut in the head":           {func(b []byte) []byte { return b[:20] }, ErrTorn, "20 bytes"},
		"cut by one byte":           {func(b []byte) []byte { return b[:listBytes-1] }, ErrTorn, "65535 bytes"},
		"one byte too many":         {func(b []byte) []byte { return append(b, 0) }, ErrTorn, "65537 bytes"},
		"of a later version":        {func(b []byte) []byte { b[8] = 2; return sum(b) }, ErrNewVersion, "version 1"},
		"one bit changed":           {func(b []byte) []byte { b[100] ^= 1; return b }, ErrTorn, "checksum"},
		"one bit after the payload": {func(b []byte) []byte { b[60000] ^= 1; return b }, ErrTorn, "checksum"},
		"a long payload": {func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[12:], listBytes)
			return sum(b)
		}, ErrTorn, "payload has 65536 bytes"},
		"of another replica":     {func(b []byte) []byte { b[28] = '2'; return sum(b) }, ErrTorn, "uid-2"},
		"generation 0":           {func(b []byte) []byte { clear(b[16:24]); return sum(b) }, ErrTorn, "generation 0"},
		"data after the payload": {func(b []byte) []byte { b[60000] = 1; return sum(b) }, ErrTorn, "not in the form"},
		"no JSON":                {func(b []byte) []byte { return withPayload(b, "{") }, ErrTorn, "JSON"},
		"no layer":               {func(b []byte) []byte { return withPayload(b, `{"layers":[],"next":2}`) }, ErrTorn, "no layer"},
		"an unknown field": {func(b []byte) []byte {
			return withPayload(b, `{"layers":[{"from":0,"files":[1]}],"next":2,"more":1}`)
		}, ErrTorn, "not in the form"},
		"a field twice": {func(b []byte) []byte {
			return withPayload(b, `{"layers":[{"from":0,"files":[1]}],"next":2,"next":2}`)
		}, ErrTorn, "not in the form"},
		"a number that would overflow": {func(b []byte) []byte {
			return withPayload(b, `{"layers":[{"from":0,"files":[1]}],"next":9223372036854775807}`)
		}, ErrTorn, "larger than"},
		"a file twice": {func(b []byte) []byte {
			return withPayload(b, `{"layers":[{"from":0,"files":[1,1]}],"next":2}`)
		}, ErrTorn, "listed twice"},
		"a file that was never given out": {func(b []byte) []byte {
			return withPayload(b, `{"layers":[{"from":0,"files":[3]}],"next":2}`)
		}, ErrTorn, "out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := fullList().encode()
			require.NoError(t, err)
			_, err = decodeList(tc.change(b), "uid-1")
			require.ErrorIs(t, err, tc.want)
			assert.Contains(t, err.Error(), listName)
			assert.Contains(t, err.Error(), tc.says)
		})
	}
}

// The largest list that the rules allow fits, with numbers of any length.
func TestAListOfAllFilesFits(t *testing.T) {
	l := list{uid: "uid-1", generation: maxNumber, chain: layers.Chain{Next: maxNumber, Reverted: layers.Interval{To: maxNumber - 1, By: maxNumber}}}
	from := layers.Number(maxNumber - 2*layers.AllFiles)
	for i := range layers.AllFiles {
		layer := layers.Layer{From: from, Files: []layers.File{layers.File(maxNumber - layers.AllFiles + i)}}
		if i < layers.AllFiles-1 {
			from++
			layer.Top = layers.Border{Point: layers.Point{Number: from, Nonce: 1<<64 - 1}, Flushed: true}
		}
		l.chain.Layers = append(l.chain.Layers, layer)
	}
	b, err := l.encode()
	require.NoError(t, err)
	got, err := decodeList(b, "uid-1")
	require.NoError(t, err)
	assert.Equal(t, l, got)

	payload, err := json.Marshal(l.chain)
	require.NoError(t, err)
	assert.Less(t, len(payload), listBytes*2/3, "there is room for more fields")

	head := &l.chain.Layers[layers.AllFiles-1]
	head.Files = append(head.Files, 1)
	_, err = l.encode()
	assert.ErrorIs(t, err, layers.ErrManyFiles)
}

// Any content is refused or is exactly what encode writes.
func FuzzDecodeList(f *testing.F) {
	b, err := fullList().encode()
	require.NoError(f, err)
	first, err := list{uid: "uid-1", generation: 1, chain: layers.NewChain()}.encode()
	require.NoError(f, err)
	for _, b := range [][]byte{b, first} {
		f.Add(b[:listHeadBytes], b[listHeadBytes:listHeadBytes+200], true)
		f.Add(b[:listHeadBytes], b[listHeadBytes:listHeadBytes+200], false)
	}
	f.Fuzz(func(t *testing.T, head, payload []byte, sound bool) {
		b := make([]byte, listBytes)
		copy(b, head)
		copy(b[listHeadBytes:listBytes-4], payload)
		if sound {
			if n := bytes.IndexByte(payload, 0); n >= 0 {
				binary.LittleEndian.PutUint32(b[12:], uint32(n))
			}
			sum(b)
		}
		l, err := decodeList(b, "uid-1")
		if err != nil {
			require.Contains(t, err.Error(), listName)
			return
		}
		require.NoError(t, l.check())
		again, err := l.encode()
		require.NoError(t, err)
		require.True(t, bytes.Equal(b, again))
	})
}
