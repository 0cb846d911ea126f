package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"time"
)

// lookAtMarks is the pause between two reads of the intent maps while a history runs.
const lookAtMarks = 3 * time.Millisecond

// The first sector with bits, in the format of docs/dataplane/FORMAT.md. The map of a small volume has only this one.
const (
	bitsAt   = 512
	bitsHead = "LHim\x00\x00\x00\x00"
)

// marks returns the marked regions of a node's replica, from its file, lowest bit first.
func (v *volume) marks(n *node) (uint64, error) {
	dir, ok := n.diskDir()
	if !ok {
		dir = filepath.Join(n.dir, "disk")
	}
	b, err := os.ReadFile(filepath.Join(dir, "replicas", v.replicaName(n), "intent.map"))
	if err != nil {
		return 0, err
	}
	if len(b) < bitsAt+16 || !bytes.HasPrefix(b[bitsAt:], []byte(bitsHead)) {
		return 0, errors.New("not an intent map")
	}
	return binary.LittleEndian.Uint64(b[bitsAt+len(bitsHead):]), nil
}

// markedRegions counts the regions that any replica has marked. The volume must be stopped.
func (v *volume) markedRegions() (int, error) {
	var union uint64
	for _, n := range v.replicaNodes() {
		m, err := v.marks(n)
		if err != nil {
			return 0, fmt.Errorf("read the marks on node %d: %w", n.number, err)
		}
		union |= m
	}
	return bits.OnesCount64(union), nil
}

// countClears counts the marks that are cleared while an engine serves and is not about to stop. It reads the replicas'
// files, until ctx is done. It misses a mark that comes back between two reads.
func (v *volume) countClears(ctx context.Context) {
	type seen struct {
		of    *child
		run   *run
		marks uint64
	}
	last := make([]seen, len(v.nodes))
	for ; ctx.Err() == nil; pause(ctx, lookAtMarks) {
		for i, n := range v.nodes {
			r, _ := v.current()
			c, _ := n.now()
			m, err := v.marks(n)
			if err != nil || r == nil || !isClosed(r.served) || v.wishes() != stay {
				last[i] = seen{}
				continue
			}
			if last[i].of == c && last[i].run == r {
				v.mu.Lock()
				v.seen.cleared += bits.OnesCount64(last[i].marks &^ m)
				v.mu.Unlock()
			}
			last[i] = seen{c, r, m}
		}
	}
}
