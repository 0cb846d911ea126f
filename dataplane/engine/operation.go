package engine

import "fmt"

// operation is an action on the volume as a whole. The engine runs only one at a time, because each relies on something
// that another changes, such as the members or the size.
type operation interface {
	// String describes the current operation, as half a sentence.
	String() string
}

// beginOperation enters an operation, or refuses it with ErrBusy. The caller holds mu.
func (e *Engine) beginOperation(o operation) error {
	if e.operation != nil {
		return fmt.Errorf("%w: %s", ErrBusy, e.operation)
	}
	e.operation = o
	return nil
}

// endOperation makes room for the next operation.
func (e *Engine) endOperation() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.operation = nil
}

// rebuilding is the current rebuild, or nil. The caller holds mu.
func (e *Engine) rebuilding() *rebuild {
	b, _ := e.operation.(*rebuild)
	return b
}
