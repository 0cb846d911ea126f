package faults

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
)

// The judge of histories gets some histories that are wrong.
func TestTheJudgeOfHistories(t *testing.T) {
	first := &run{generation: 1, over: 100}
	second := &run{generation: 2, over: never}
	write := func(r *run, value uint64, from, to int64) operation {
		return operation{porcupine.Operation{Input: input{kind: opWrite, value: value}, Call: from, Output: output{}, Return: to}, r}
	}
	lost := func(r *run, value uint64, from, to int64) operation {
		return operation{porcupine.Operation{Input: input{kind: opWrite, value: value}, Call: from, Output: output{unknown: true}, Return: to}, r}
	}
	read := func(r *run, value uint64, from, to int64) operation {
		return operation{porcupine.Operation{ClientId: 1, Input: input{}, Call: from, Output: output{value: value}, Return: to}, r}
	}
	synced := func(r *run, value uint64, from, to int64) operation {
		op := write(r, value, from, to)
		op.Input = input{kind: opWrite, value: value, durable: true}
		return op
	}
	flush := func(r *run, from, to int64) operation {
		return operation{porcupine.Operation{Input: input{kind: opFlush}, Call: from, Output: output{}, Return: to}, r}
	}
	powerLost := func(from, to int64) operation {
		return operation{porcupine.Operation{ClientId: 2, Input: input{kind: opPowerLoss}, Call: from, Output: output{}, Return: to}, nil}
	}
	for _, tc := range []struct {
		name string
		ops  []operation
		want string // part of the verdict; empty if right
	}{
		{name: "a value is read that was acknowledged → right", ops: []operation{write(first, 7, 0, 10), read(first, 7, 20, 30)}},
		{
			name: "an acknowledged write is gone after a new start → wrong",
			ops:  []operation{write(first, 7, 0, 10), read(second, 0, 120, 130)}, want: "no order",
		},
		{
			name: "an older value is read after a newer one was → wrong",
			ops:  []operation{write(first, 7, 0, 10), write(first, 8, 20, 60), read(first, 8, 30, 35), read(first, 7, 40, 45)}, want: "no order",
		},
		{
			name: "a write without an answer is seen, and after a new start is not → right, as with any disk",
			ops:  []operation{write(first, 7, 0, 10), lost(first, 8, 20, 30), read(first, 8, 40, 50), read(second, 7, 120, 130)},
		},
		{
			name: "a write without an answer overtakes one that was acknowledged after the new start → wrong",
			ops:  []operation{lost(first, 8, 20, 30), write(second, 9, 120, 130), read(second, 8, 140, 150)}, want: "no order",
		},
		{
			name: "the engine acknowledges late what was begun in its time → right, if its successor has it",
			ops:  []operation{write(first, 7, 90, 110), read(second, 7, 120, 130)},
		},
		{
			name: "the engine acknowledges late, and its successor does not have it → wrong",
			ops:  []operation{write(first, 7, 90, 110), read(second, 0, 120, 130)}, want: "no order",
		},
		{
			name: "the engine acknowledges what was begun after its successor served → wrong",
			ops:  []operation{write(first, 7, 101, 110)}, want: "generation 1 acknowledged a write",
		},
		{
			name: "a read of an engine whose time is over is stale → not looked at, it may be cut off",
			ops:  []operation{write(second, 7, 101, 110), read(first, 0, 120, 130)},
		},
		{
			name: "power is lost after a write that was not flushed → the older value is right too",
			ops:  []operation{synced(first, 7, 0, 5), write(first, 8, 10, 20), powerLost(30, 40), read(second, 7, 120, 130)},
		},
		{
			name: "power is lost after a write that was not flushed → what was there before the last flush is wrong",
			ops:  []operation{synced(first, 7, 0, 5), write(first, 8, 10, 20), powerLost(30, 40), read(second, 0, 120, 130)},
			want: "no order",
		},
		{
			name: "power is lost after a write that was flushed → the older value is wrong",
			ops:  []operation{write(first, 8, 10, 20), flush(first, 22, 25), powerLost(30, 40), read(second, 0, 120, 130)}, want: "no order",
		},
		{
			name: "power is lost after a synced write → the older value is wrong",
			ops:  []operation{synced(first, 8, 10, 20), powerLost(30, 40), read(second, 0, 120, 130)}, want: "no order",
		},
		{
			name: "a flush that began after its engine was succeeded → says nothing",
			ops:  []operation{write(first, 8, 10, 20), flush(first, 110, 115), powerLost(120, 125), read(second, 0, 130, 140)},
		},
		{
			name: "power is lost before a write → the older value is wrong",
			ops:  []operation{powerLost(1, 2), write(first, 8, 10, 20), read(first, 0, 30, 40)}, want: "no order",
		},
		{
			name: "a block is discarded, and read as it was → wrong",
			ops:  []operation{write(first, 7, 0, 10), write(first, 0, 20, 30), read(first, 7, 40, 50)}, want: "no order",
		},
		{name: "a block is discarded, and reads as zeroes → right", ops: []operation{write(first, 7, 0, 10), write(first, 0, 20, 30), read(first, 0, 40, 50)}},
		{
			name: "power is lost after a discard that was flushed → what was there before is wrong",
			ops:  []operation{synced(first, 7, 0, 5), write(first, 0, 10, 20), flush(first, 22, 25), powerLost(30, 40), read(second, 7, 120, 130)},
			want: "no order",
		},
		{name: "a value is read that nobody wrote → wrong", ops: []operation{read(first, 3, 0, 10)}, want: "no order"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &history{ops: tc.ops}
			got := h.check()
			if tc.want == "" {
				assert.Empty(t, got)
			}
			assert.Contains(t, got, tc.want)
		})
	}
}
