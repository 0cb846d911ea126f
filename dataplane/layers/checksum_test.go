package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestJudgeSum(t *testing.T) {
	const good, rotten, other = 7, 8, 9
	for _, tc := range []struct {
		name          string
		mine, counted uint32
		known         bool
		others        []uint32
		members       int
		want          Verdict
	}{
		{"the only member → counts", good, 0, false, nil, 1, Counts},
		{"the other member has computed nothing yet → waits", good, 0, false, nil, 2, Waits},
		{"one of two others has computed nothing yet → waits", good, 0, false, []uint32{good}, 3, Waits},
		{"two agree → counts", good, 0, false, []uint32{good}, 2, Counts},
		{"two differ → unclear", good, 0, false, []uint32{rotten}, 2, Unclear},
		{"three agree → counts", good, 0, false, []uint32{good, good}, 3, Counts},
		{"one of three differs, not this one → counts", good, 0, false, []uint32{good, rotten}, 3, Counts},
		{"this one of three differs → repair", rotten, 0, false, []uint32{good, good}, 3, Repair},
		{"three differ → unclear", rotten, 0, false, []uint32{good, other}, 3, Unclear},
		{"it counted before and is the same → counts", good, good, true, []uint32{rotten}, 2, Counts},
		{"it counted before and differs now → repair", rotten, good, true, []uint32{good}, 2, Repair},
		{"it differs, and no other member matches → unclear", rotten, good, true, []uint32{other}, 2, Unclear},
		{"it differs, and there is no other member → unclear", rotten, good, true, nil, 1, Unclear},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, JudgeSum(tc.mine, tc.counted, tc.known, tc.others, tc.members))
		})
	}
}
