// Package faults breaks the data plane on purpose and looks whether it kept its word. It has tests only.
//
//	test process                                       child processes, one per "node"
//	------------                                       -------------------------------
//	clients: a writer and a reader per block  --NBD-->  instance.Instance: an engine on one of them, a replica on each,
//	control: what the controllers do          --gRPC->     each on a small file system of its own (loop device, mount namespace)
//	object:  the Engine object, by compare-and-swap
//	proxies: between engines and replicas, cut or stalled
//	plan:    kill, pause, cut, stall, full disk, broken disk, no API server, an engine overtaken, moved, a member removed
//
// Every history is one volume on the same three processes: create, start, write and read under a plan of faults drawn from a seed,
// heal, wait until all three replicas are members again, then compare. It fails when
//
//   - porcupine finds no order of the operations of a block that explains what was read (a lost acknowledged write, a stale read);
//   - an engine acknowledges a write that began after its successor served;
//   - the volume does not become whole again;
//   - the replicas differ at the end.
//
// FAULT_SEED=n repeats the plan of one seed; what the scheduler of the machine adds to it is not repeated. LONG=1 runs ten times as
// many. A restored API object and loss of power are not among the faults: see membership/explore, and package replica.
package faults
