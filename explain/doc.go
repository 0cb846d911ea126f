// Package explain finds out why a volume, node, disk or claim is in its present state, and what to do next. It takes
// a Snapshot of the cluster's objects and returns Findings: the object, its problem, the cause, and the next steps. A
// step has a command if there is one.
//
//	conditions of the objects ──► advice*.go: one row per condition and reason ──┐
//	relations between objects ──► node.go, volume.go, copies.go, claim.go ... ───┴──► Findings, the worst first
//
//	Findings of the whole cluster ──► cause.go, dependency.go ──► Causes, each with its consequences
//	a name ──► find.go ──► the objects that it may mean
//
// A controller that sets a condition already gives the reason in the condition's message, with names and numbers. The
// tables add the meaning and the remedy. A reason without a row here, for example of a later release, is reported
// with its message. A test fails if a reason of this release has no row.
//
// The package is pure: it has no client, no clock and no terminal text. The same Snapshot gives the same Findings, so
// the command line and a web page show the same. The package must not decide anything for the controllers. It asks
// package scheduler where a replica would fit instead of guessing.
package explain
