package membership

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
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
			if err != nil || string(b) != tc.want {
				t.Fatalf("%s, %v; want %s", b, err, tc.want)
			}
			var got Regions
			if err := json.Unmarshal(b, &got); err != nil || !slices.Equal(got.Indexes, tc.indexes) {
				t.Errorf("read back %v, %v", got.Indexes, err)
			}
		})
	}
}

func TestAllRegionsOfALargeVolumeFitOneMessage(t *testing.T) {
	all := make([]int64, 512<<10)
	for i := range all {
		all[i] = int64(i)
	}
	b, err := json.Marshal(Regions{Indexes: all})
	if err != nil || len(b) > 100<<10 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
}

func TestBadRegionsAreRefused(t *testing.T) {
	for _, indexes := range [][]int64{{5, 90, 4}, {90, 4}, {-1}, {0, maxRegions}} {
		if _, err := json.Marshal(Regions{Indexes: indexes}); err == nil {
			t.Errorf("%v was encoded", indexes)
		}
	}
	for _, text := range []string{`{"first":-8}`, `{"first":9223372036854775807,"bits":"gA=="}`, `[]`} {
		var r Regions
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s was decoded as %v", strings.TrimSpace(text), r.Indexes)
		}
	}
}
