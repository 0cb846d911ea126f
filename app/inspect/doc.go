// Package inspect implements the commands with which users inspect a cluster in a terminal. It reads the objects with
// the user's rights. It prints the findings of package explain, packs a bundle for support, and checks whether the node
// on which it runs meets the requirements.
//
//	gather.go   the API server ──► explain.Snapshot      doctor.go   this node ──► checks
//	status.go   Snapshot ──► overview                    bundle.go   the API server ──► tar.gz
//	text.go     lines that fit the terminal              scrub.go    removes credentials from a bundle
//	table.go    tables that fit it                       causes.go   explain.Causes ──► text
//	version.go  which versions run where                 preflight.go the cluster and its nodes ──► checks
//
// It changes nothing in the cluster or on the node, and reads no Secret. Rules about objects belong in package
// explain, rules about a node in controller/node.
package inspect
