// Package engine runs the engines of its daemon's node. It raises the generation before each
// start, starts and stops the engine in the node's instance manager, records the epochs that
// the engine proposes, starts the rebuilds that the spec asks for, and shows the state of all
// that in Engine.status.
//
// It owns: Engine.status, among it the truth about who may write (generation, session)
// and who holds every acknowledged write (epoch); and the Engine's finalizer.
//
//	Engine.status                    instance manager
//	-------------                    ----------------
//	generation+1, new session  -->   start(generation, session, epoch)
//	epoch                      <--   proposes an epoch
//	epoch written              -->   record(epoch): from here on it serves
//	running, endpoint          <--   running
//
// Each arrow to the right follows a write that the API server has confirmed.
//
// Only while the node is down, or the engine is on none, package abandon writes in its place:
// the leader runs it, and it cannot ask the instance manager. What both must see alike is in
// package ending.
//
//	engine (its node)              abandon (leader)
//	-----------------              ----------------
//	runs                           -
//	runs; the node is silent       generation+1, no session, stopped
//	the node is back: session      -
//	is not the object's, ended
//	by force
//
// It must not know where a volume shall be attached, how data is written, nor which nodes
// are down.
package engine
