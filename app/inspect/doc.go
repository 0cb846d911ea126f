// Package inspect is what people at a terminal look at a cluster with: it reads the objects by a user's own rights, prints what
// package explain finds in them, packs a bundle for support, and asks the node it runs on what that lacks.
//
//	gather.go   the API server ──► explain.Snapshot      table.go    Findings ──► text
//	status.go   Snapshot ──► overview                    doctor.go   this node ──► checks
//	bundle.go   the API server ──► tar.gz                scrub.go    what a bundle must not have
//
// It changes nothing in the cluster or on the node, and reads no Secret. Rules about objects belong in package explain, rules
// about a node in controller/node.
package inspect
