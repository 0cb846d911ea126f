// Package faults breaks the data plane on purpose and checks that it keeps its promises. It has tests only.
//
//	test process                                       child processes, one per "node"
//	------------                                       -------------------------------
//	clients: a writer and a reader per block  -------->   instance.Instance: an engine on one of them, a replica on each,
//	control: what the controllers do          --gRPC->     each on a small file system of its own (loop device, mount namespace)
//	object:  the Engine object, by compare-and-swap
//	proxies: between engines and replicas, cut or stalled
//	plan:    kill, power loss, pause, cut, stall, full disk, broken disk, hung disk (frozen: nothing fails, and all is answered late),
//	         slow syncs, failing syncs of data, marks and metadata, caches dropped, writes so long that sockets fill, no API server, an engine overtaken, moved, a member removed;
//	         the volume made larger, a replica moved to another node: another one is rebuilt there, then the first leaves the epoch;
//	         full copies that are slow, and interrupted;
//	         and stories: several of these in an order that hurts
//
// Clients use the engine's export for tools, and in a third of the histories its block device, with flushes and discards, where devices
// can be made. Two sets of processes run histories side by side, for they mostly wait.
//
// Every history is one volume on the same three processes, with two replicas or three: create, start, write and read under a plan of
// faults drawn from a seed, heal, wait until all replicas are members again, then compare. It fails when
//
//   - porcupine finds no order of the operations of a block that explains what was read (a lost acknowledged write, a stale read; with
//     a power loss, one that was flushed);
//   - an engine acknowledges a write that began after its successor served;
//   - the volume does not become whole again, with the size that was asked for last;
//   - a size is offered that a member, as its directory says, does not have; a replica becomes smaller, or what users see does;
//   - something is read that no client wrote: what is new reads as zeroes;
//   - the replicas differ after an end in order that left no mark.
//
// What is at stake besides: intent marks. The engines have no patience (node_test.go): a region of the volume's five that is quiet for
// some 20 ms is unmarked, and a member that is 60 ms late is expelled. Writers rest in turn, so that at any time some regions are marked
// and some are not. A start after a crash then copies some of them only, and whatever is unmarked and differs shows at the end. The
// test counts marks that were cleared, such starts, members that were too slow, and rebuilds of a part of the volume, and fails if there
// were none; among very many also of copies that were gone on with, for a part of the volume.
//
// A sync that fails loses what it was to write out as a kernel does (cache_test.go): that reads as it was written,
// also for the processes that come next, until the node's caches are dropped. When a replica is opened about half of
// these pages are in use, and stay. At the end all caches are dropped before the replicas are compared. Marks and the record of what was changed are kept so too. What was acknowledged
// and not flushed may be gone after a sync of data failed, as after a loss of power.
//
// A node loses its power by itself: its file system is shut down without being written out, and mounted again under another boot id.
//
// FAULT_SEED=n repeats the plan of one seed; what the scheduler of the machine adds to it is not repeated. LONG=1 runs ten times as
// many. A restored API object is not among the faults (see dataplane/membership/explore), nor are sectors torn by a power loss (see package
// replica).
package faults
