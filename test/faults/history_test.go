package faults

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// input is what a client asked of one block, output what it was told.
type input struct {
	block   int
	isWrite bool
	value   uint64 // of a write; 0 is never written
}

type output struct {
	value   uint64 // of a read
	unknown bool   // of a write that was not acknowledged: it may or may not have been done
}

// operation is an operation with the run of the engine that was asked.
type operation struct {
	porcupine.Operation
	run *run
}

// history collects the operations of one volume.
type history struct {
	began time.Time

	mu  sync.Mutex
	ops []operation // guarded by mu
}

func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() }

func (h *history) add(client int, r *run, in input, call int64, out output) {
	op := porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: h.now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, operation{op, r})
}

// register is a block: the set of what it may hold. A write that was acknowledged leaves its value alone; one that was not adds its
// value, for good until the next acknowledged one: which of the members it reached is decided anew when the engine starts again, so it
// may be seen and then not. This is what a disk does with a write that it did not confirm.
var register = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		blocks := make([][]porcupine.Operation, blockCount)
		for _, op := range ops {
			b := op.Input.(input).block
			blocks[b] = append(blocks[b], op)
		}
		return blocks
	},
	Init: func() any { return setOf(0) },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(string), in.(input), out.(output)
		switch {
		case !i.isWrite:
			return strings.Contains(s, setOf(o.value)), s
		case o.unknown:
			if strings.Contains(s, setOf(i.value)) {
				return true, s
			}
			return true, s + setOf(i.value)
		}
		return true, setOf(i.value)
	},
	DescribeOperation: func(in, out any) string {
		i, o := in.(input), out.(output)
		switch {
		case !i.isWrite:
			return fmt.Sprintf("read block %d: %d", i.block, o.value)
		case o.unknown:
			return fmt.Sprintf("write block %d: %d, unknown", i.block, i.value)
		}
		return fmt.Sprintf("write block %d: %d", i.block, i.value)
	},
}

func setOf(v uint64) string { return "<" + strconv.FormatUint(v, 10) + ">" }

// check says what is wrong with the history; empty if nothing.
//
// When a run of the engine was succeeded by another that serves, its time is over: what it read after that is nobody's business (it
// may be cut off and not know), what it did not acknowledge by then either happened before or never does, and what it acknowledges
// though it was asked only after that is a violation by itself.
func (h *history) check() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ops []porcupine.Operation
	for _, op := range h.ops {
		in, out := op.Input.(input), op.Output.(output)
		over := op.run.overAt()
		switch {
		case !in.isWrite && op.Return > over, in.isWrite && out.unknown && op.Call > over:
			continue
		case in.isWrite && !out.unknown && op.Call > over:
			return fmt.Sprintf("generation %d acknowledged a write of block %d that began %v after its successor served",
				op.run.generation, in.block, time.Duration(op.Call-over))
		case in.isWrite && out.unknown && !h.wentOnLocked(op):
			op.Return = over // its requests may still have been on their way
		case in.isWrite && out.unknown:
			op.Return = min(op.Return, over)
		}
		ops = append(ops, op.Operation)
	}
	switch porcupine.CheckOperationsTimeout(register, ops, time.Minute) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return "the history could not be judged in time"
	}
	return "no order explains this history:\n" + h.brokenBlocksLocked(ops)
}

// wentOnLocked says whether the run of an operation answered another one later, so was alive when it gave this one up.
func (h *history) wentOnLocked(op operation) bool {
	return slices.ContainsFunc(h.ops, func(o operation) bool {
		return o.run == op.run && o.Call >= op.Return && !o.Output.(output).unknown
	})
}

// brokenBlocksLocked lists the operations of the blocks that have no order, in order of time.
func (h *history) brokenBlocksLocked(ops []porcupine.Operation) string {
	var b strings.Builder
	for _, part := range register.Partition(ops) {
		if porcupine.CheckOperationsTimeout(register, part, time.Minute) == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(x, y porcupine.Operation) int { return int(x.Call - y.Call) })
		for _, op := range part {
			fmt.Fprintf(&b, "  %10.3f .. %10.3f ms  client %d  %s\n",
				float64(op.Call)/1e6, float64(op.Return)/1e6, op.ClientId, register.DescribeOperation(op.Input, op.Output))
		}
	}
	return b.String()
}

// counts returns how many writes were acknowledged and not, and how many reads there were.
func (h *history) counts() (acknowledged, unknown, reads int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range h.ops {
		switch {
		case !op.Input.(input).isWrite:
			reads++
		case op.Output.(output).unknown:
			unknown++
		default:
			acknowledged++
		}
	}
	return acknowledged, unknown, reads
}

const never = math.MaxInt64
