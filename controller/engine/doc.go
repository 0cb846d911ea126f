// Package engine runs the engines of one node: it raises the generation before each
// start, starts and stops the engine in the node's instance manager, records the
// epochs that the engine proposes, has replicas rebuilt that the spec asks for, and tells
// in Engine.status how all that fares. The leader runs it too, for engines without a node,
// which cannot be running, and for those whose node is down and that shall stop: they are
// abandoned, and ended by force when their node is back.
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
// It must not know where a volume shall be attached, nor how data is written.
package engine
