// Package inspect implements the commands with which users inspect a cluster in a terminal. It reads the objects with
// the user's rights, prints the findings of package explain, packs a bundle for support, and checks what the node on
// which it runs lacks.
//
//	gather.go   the API server ──► explain.Snapshot      table.go    Findings ──► text
//	status.go   Snapshot ──► overview                    doctor.go   this node ──► checks
//	bundle.go   the API server ──► tar.gz                scrub.go    removes credentials from a bundle
//
// It changes nothing in the cluster or on the node, and reads no Secret. Rules about objects belong in package
// explain, rules about a node in controller/node.
package inspect
