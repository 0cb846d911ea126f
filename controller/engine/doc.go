// Package engine runs the engines of its daemon's node. It raises the generation before each start, and starts and
// stops the engine in the node's instance manager. It records the epochs that the engine proposes, starts the
// rebuilds that the spec requests, and shows the state of all that in Engine.status.
//
// It owns Engine.status and the Engine's finalizer. The status includes the truth about who may write (generation,
// session) and which replicas have every acknowledged write (epoch).
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
// Only while the node is down, or while the spec has no node, package strandedengine writes the status instead. The
// leader runs that package, and it cannot ask the instance manager. Package engineteardown has the rules that both must
// share.
//
//	engine (its node)              strandedengine (leader)
//	-----------------              -----------------------
//	runs                           -
//	runs; the node is silent       generation+1, no session, stopped
//	the node is back: the session  -
//	differs from the object's,
//	stopped by force
//
// The package must not know where a volume must be attached, how data is written, nor which nodes are down.
package engine
