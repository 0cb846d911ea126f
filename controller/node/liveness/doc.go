// Package liveness finds out within seconds that a node which serves shares is down. It runs in the leader.
//
//	each 0.5 s    one question to the health port of each share, on a connection that stays open
//	   │ three questions in a row that no share of the node answers
//	   ▼
//	judgement     new connections to the shares' health ports, the kubelet and the instance manager, by the leader
//	   │          and by a witness, the daemon of another node; what accepts or refuses one lives
//	   ▼
//	verdict       NodeSilence, until something of the node answers again; package node writes it (silence.go)
//
// Silence counts only while the leader's own loop is on time, and only of addresses that have answered this process. Two nodes that fall
// silent together wait for longer, and a node whose verdict proved wrong has none for a while. Each of these rules is needed: a model
// (model_test.go) runs the decisions, and finds a wrong verdict where one rule is left out. A wrong verdict costs a failover of the node's
// shares, and no data: replicas refuse an earlier engine's writes.
//
// A node whose daemon is of an earlier release renews a Lease (leases.go). A renewal is a sign of life; nothing else is expected of it.
//
// A share may be silent while its node lives: package sharemanager asks for that (shares.go).
//
// Decisions are in plan.go. The package must not know volumes beyond where they are used.
package liveness
