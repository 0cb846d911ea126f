// Package defaults reads what a Kubernetes node says of the disks and tags of the
// Longhorn node of its name, and decides what of it to apply:
//
//	setting, label,          Decide           Check
//	annotations,        ───────────► disks ───────────► DiskSpecs by name
//	"has disks/tags"        │                   ▲
//	                        └─► tags            └── what a scan of the paths found
//
// An annotation is applied as a whole or not at all. If it breaks rules there is one
// *Error: about the first value, in the order of the text, that breaks one, with its
// place in the JSON. ParseDisks and ParseTags check what the text alone shows; Check
// compares it afterwards with what only the node can tell. Record turns the problems
// into conditions, and says which of them are news.
//
// Everything here is values in, values out. The package must not know the API server,
// nor how directories are examined, nor when a decision is made.
package defaults
