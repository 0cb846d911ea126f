// Package line converts the record of a volume's snapshots between the Engine object and the rules in package
// dataplane/layers.
//
// The object also has the names, times and sizes of snapshots. The rules need none of them, so a rule's result is
// combined with the object's earlier record. The package must not know controllers, clients or the data plane's wire.
package line
