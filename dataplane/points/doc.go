// Package points has the messages about points and layers that an engine sends to a replica. Package layers has the
// rules, and docs/dataplane/SNAPSHOTS.md explains the words.
//
// The messages are operations of the private NBD command (package nbd, Controller), as in package membership. Payloads
// are JSON, except the data of a view; unknown keys are ignored. A replica answers only the connection that holds its
// gate. A replica of a release without these operations answers ENOTSUP.
//
// The package must not know how an engine or a replica carries out an operation.
package points
