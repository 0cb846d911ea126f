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

// kind is the kind of an operation on a block.
type kind int

const (
	opRead kind = iota
	opWrite
	opFlush     // answered with success
	opPowerLoss // a node lost its power, and the data that was not synced there
)

// input is a client's request about one block. output is the answer.
type input struct {
	block   int
	kind    kind
	value   uint64 // of a write; 0 for a block that was discarded or zeroed
	durable bool   // of a write: it must be synced before it is answered
}

type output struct {
	value   uint64 // of a read
	unknown bool   // of a write that was not acknowledged: it may or may not have happened
}

// operation is an operation with the run of the engine that got it; nil if none did.
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

// losePower records that a node lost its power, at some time from call to now.
func (h *history) losePower(call int64) {
	for block := range blockCount {
		h.add(2*blockCount+1, nil, input{block: block, kind: opPowerLoss}, call, output{})
	}
}

// holds is the set of values that a block may have, and the set that it may have if power is lost now.
type holds struct{ now, kept string }

// register is a block: the set of values that it may have. An acknowledged write leaves only its own value. An
// unacknowledged write adds its value, which stays possible until the next acknowledged write. Each new start of the
// engine decides again which members had received the write, so the value may appear and then disappear. A disk behaves
// in the same way for a write that it did not confirm.
//
// After a node has lost its power, acknowledged data that was not flushed may be lost, because the volume may start
// again from that node. The final comparison checks that the members then agree, whatever they have.
var register = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		blocks := make([][]porcupine.Operation, blockCount)
		for _, op := range ops {
			b := op.Input.(input).block
			blocks[b] = append(blocks[b], op)
		}
		return blocks
	},
	Init: func() any { return holds{setOf(0), setOf(0)} },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(holds), in.(input), out.(output)
		v := setOf(i.value)
		switch {
		case i.kind == opRead:
			return strings.Contains(s.now, setOf(o.value)), s
		case i.kind == opFlush:
			return true, holds{s.now, s.now}
		case i.kind == opPowerLoss:
			either := union(s.now, s.kept)
			return true, holds{either, either}
		case o.unknown:
			return true, holds{union(s.now, v), union(s.kept, v)}
		case i.durable:
			return true, holds{v, v}
		}
		return true, holds{v, union(s.kept, v)}
	},
	DescribeOperation: func(in, out any) string {
		i, o := in.(input), out.(output)
		switch {
		case i.kind == opRead:
			return fmt.Sprintf("read block %d: %d", i.block, o.value)
		case i.kind == opFlush:
			return "flush"
		case i.kind == opPowerLoss:
			return "power lost"
		case o.unknown:
			return fmt.Sprintf("write block %d: %d, unknown", i.block, i.value)
		case i.durable:
			return fmt.Sprintf("write block %d: %d, synced", i.block, i.value)
		}
		return fmt.Sprintf("write block %d: %d", i.block, i.value)
	},
}

// union adds a set to a set; the order of the values has no meaning.
func union(s, t string) string {
	for _, v := range strings.SplitAfter(t, ">") {
		if !strings.Contains(s, v) {
			s += v
		}
	}
	return s
}

func setOf(v uint64) string { return "<" + strconv.FormatUint(v, 10) + ">" }

// check describes the error in the history, or returns "".
//
// The time of a run of the engine is over when a successor serves. Its later reads are not judged (it may be cut off
// and not know), and neither are its later flushes. A write that it did not acknowledge by then either happened before
// or never does. If it acknowledges a write that was requested only after that, this alone is a violation.
func (h *history) check() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ops []porcupine.Operation
	for _, op := range h.ops {
		in, out := op.Input.(input), op.Output.(output)
		over, write := op.run.overAt(), in.kind == opWrite
		switch {
		case !write && op.Return > over, write && out.unknown && op.Call > over:
			continue
		case write && !out.unknown && op.Call > over:
			return fmt.Sprintf("generation %d acknowledged a write of block %d that began %v after its successor served",
				op.run.generation, in.block, time.Duration(op.Call-over))
		case write && out.unknown && !h.wentOnLocked(op):
			op.Return = over // its requests may still have been on their way
		case write && out.unknown:
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

// wentOnLocked reports whether the run of an operation answered a later one: then it was alive when it abandoned this
// one. The caller holds mu.
func (h *history) wentOnLocked(op operation) bool {
	return slices.ContainsFunc(h.ops, func(o operation) bool {
		return o.run == op.run && o.Call >= op.Return && !o.Output.(output).unknown
	})
}

// brokenBlocksLocked lists the operations of the blocks that have no order, in order of time. The caller holds mu.
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

// counts returns the numbers of acknowledged writes, unacknowledged writes, and reads.
func (h *history) counts() (acknowledged, unknown, reads int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range h.ops {
		switch op.Input.(input).kind {
		case opRead:
			reads++
		case opWrite:
			if op.Output.(output).unknown {
				unknown++
			} else {
				acknowledged++
			}
		}
	}
	return acknowledged, unknown, reads
}

const never = math.MaxInt64
