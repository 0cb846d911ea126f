// Package explain says why a volume, node, disk or claim is as it is, and what to do next. It takes a
// Snapshot of the cluster's objects and returns Findings: what is wrong with which object, why, and the next
// steps, with the command where there is one.
//
//	conditions of the objects ──► advice*.go: one row per condition and reason ──┐
//	relations between objects ──► node.go, volume.go, copies.go, claim.go ... ───┴──► Findings, the worst first
//
// A controller that sets a condition has already said why in its message, with the names and numbers; the
// tables add what that means and what helps. A reason that has no row here, as of a later release, is told with
// its message. A test refuses a reason of ours without a row.
//
// It is pure: no client, no clock, no text of a terminal. The same Snapshot gives the same Findings, so the
// command line and a page of a browser show the same. It must not decide anything for the controllers, and asks
// package scheduler where a replica would fit instead of guessing.
package explain
