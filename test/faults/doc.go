// Package faults breaks the data plane on purpose and checks its guarantees. It has only tests.
//
//	test process                                       child processes, one per "node"
//	------------                                       -------------------------------
//	clients: a writer and a reader per block  -------->   instance.Instance: an engine on one, a replica on each;
//	control: does the controllers' work        --gRPC->   each has its own small file system (loop device, mount ns)
//	object:  the Engine object, by compare-and-swap
//	proxies: between engines and replicas, cut or stalled
//	plan:    the faults, listed below
//
// A plan consists of these faults:
//
//   - kill, power loss, pause, cut, stall
//   - full disk, broken disk, hung disk (frozen: nothing fails, and all requests are answered late)
//   - slow syncs; failing syncs of data, marks and metadata; dropped caches
//   - writes so long that sockets fill
//   - no API server
//   - an engine that is overtaken or moved, a member that is removed
//   - the volume is made larger
//   - a replica moves to another node: another replica is rebuilt there, then the first one leaves the epoch
//   - full copies that are slow, and interrupted
//   - stories: several of these in an order that is hard to survive
//
// Clients use the engine's export for tools. In a third of the histories they use its block device, with flushes and
// discards, where devices can be created. Two sets of processes run histories in parallel, because they mostly wait.
//
// Every history is one volume on the same three processes, with two or three replicas. The test creates and starts it,
// writes and reads under a plan of faults drawn from a seed, heals it, and waits until all replicas are members again.
// Then it compares the replicas. The history fails in these cases:
//
//   - Porcupine finds no order of the operations of a block that explains the reads: a lost acknowledged write, or a
//     stale read. With a power loss, only flushed writes count as acknowledged.
//   - An engine acknowledges a write that started after its successor served.
//   - The volume does not become whole again, with the last requested size.
//   - A size is offered that a member does not have, according to its directory. Or a replica becomes smaller, or the
//     size that users see does.
//   - A read returns data that no client wrote: new ranges read as zeroes.
//   - The replicas differ after an orderly stop that left no mark.
//
// The histories also test intent marks. The engines have no patience (node_test.go): they unmark a region that is quiet
// for some 20 ms, and expel a member that is 60 ms late. The volume has five regions. Writers rest in turn, so at any
// time some regions are marked and some are not. A start after a crash then copies only some of the regions, and at the
// end the comparison shows any unmarked difference. The test counts cleared marks, such starts, members that were too
// slow, and rebuilds of a part of the volume. It fails if one of these never happened. With very many histories, this
// also holds for resumed copies of a part of the volume.
//
// A failed sync loses the data that it had to write out, like in a kernel (cache_test.go). Reads still return the lost
// data, also in later processes, until the node's caches are dropped. When a replica is opened, about half of these
// pages are in use, and stay. At the end all caches are dropped before the replicas are compared. The cache also keeps
// marks and the record of changes in this way. After a failed sync of data, acknowledged data that was not flushed may
// be lost, as after a loss of power.
//
// A node loses its power separately from other nodes: its file system is shut down without being written out, and
// mounted again with another boot id.
//
// FAULT_SEED=n repeats the plan of one seed; it does not repeat the decisions of the machine's scheduler. LONG=1 runs
// ten times as many histories. A restored API object is not among the faults (see dataplane/membership/explore).
// Sectors torn by a power loss are not among them either (see package replica).
package faults
