// Package liveness answers within seconds: is a node that serves shares down? It runs in the leader.
//
//	every 0.5 s   one question to the health port of each share, on a connection that stays open
//	   │ three questions in a row that no share of the node answers
//	   ▼
//	judgement     new connections to the shares' health ports, the kubelet and the instance manager, by the leader
//	   │          and by a witness, the daemon of another node; if anything accepts or refuses, the node lives
//	   ▼
//	verdict       NodeSilence, until something of the node answers again; package node writes it (silence.go)
//
// Silence counts only while the leader's own loop is on time, and only for addresses that have answered this process.
// If two nodes fall silent together, the package judges them later. If a verdict proved wrong, the node gets none for a
// while. Each of these rules is needed: a model (model_test.go) runs the decisions, and finds a wrong verdict when one
// rule is left out. A wrong verdict costs a failover of the node's shares, and no data: replicas refuse an earlier
// engine's writes.
//
// The daemon of an earlier release renews a Lease for its node (leases.go). A renewal is a sign of life. Its absence
// proves nothing.
//
// A share may be silent while its node lives: package sharemanager reads that from here (shares.go).
//
// Decisions are in plan.go. The only fact about volumes that the package may know is where they are used.
package liveness
