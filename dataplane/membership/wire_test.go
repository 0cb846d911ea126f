package membership

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegionsOnTheWire(t *testing.T) {
	for _, tc := range []struct {
		name    string
		indexes []int64
		want    string
	}{
		{name: "none", want: `{"first":0,"bits":null}`},
		{name: "the first", indexes: []int64{0}, want: `{"first":0,"bits":"AQ=="}`},
		{name: "far ones take few bytes", indexes: []int64{1001, 1002, 1015}, want: `{"first":1000,"bits":"BoA="}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := json.Marshal(Regions{Indexes: tc.indexes})
			require.NoError(t, err)
			require.Equal(t, tc.want, string(b))
			var got Regions
			err = json.Unmarshal(b, &got)
			require.NoError(t, err)
			assert.Equal(t, tc.indexes, got.Indexes)
		})
	}
}

func TestAllRegionsOfALargeVolumeFitOneMessage(t *testing.T) {
	all := make([]int64, mostRegions)
	for i := range all {
		all[i] = int64(i)
	}
	b, err := json.Marshal(Regions{Indexes: all})
	require.NoError(t, err)
	require.LessOrEqual(t, len(b), 100<<10)
}

func TestBadRegionsAreRefused(t *testing.T) {
	for _, indexes := range [][]int64{{5, 90, 4}, {90, 4}, {-1}, {0, mostRegions}} {
		_, err := json.Marshal(Regions{Indexes: indexes})
		assert.Error(t, err, "%v was encoded", indexes)
	}
	tooMany := fmt.Sprintf(`{"first":0,"bits":%q}`, base64.StdEncoding.EncodeToString(make([]byte, mostRegions/8+1)))
	for _, text := range []string{`{"first":-8}`, `{"first":9223372036854775807,"bits":"gA=="}`, `[]`, tooMany} {
		var r Regions
		assert.Error(t, json.Unmarshal([]byte(text), &r), "%s was decoded as %v", strings.TrimSpace(text), r.Indexes)
	}
}

// The formats that earlier releases send and accept stay unchanged.
func TestTheLastQuestionOnTheWire(t *testing.T) {
	b, err := json.Marshal(State{LastAsked: &LastAsked{Generation: 5, AgoMillis: 2500}})
	require.NoError(t, err)
	assert.Contains(t, string(b), `"lastAsked":{"generation":5,"agoMillis":2500}`)
	b, err = json.Marshal(State{})
	require.NoError(t, err)
	assert.NotContains(t, string(b), "lastAsked")
	b, err = json.Marshal(InForce{Limited: true})
	require.NoError(t, err)
	assert.JSONEq(t, `{"limited":true}`, string(b))
	var s State
	require.NoError(t, json.Unmarshal([]byte(`{"uid":"u","lastAsked":null,"novel":1}`), &s))
	assert.Nil(t, s.LastAsked)
}
