// Package defaults reads the disks and tags that a Kubernetes node requests for the Longhorn node with the same name,
// and decides what to apply:
//
//	setting, label,          Decide           Check
//	annotations,        ───────────► disks ───────────► DiskSpecs by name
//	"has disks/tags"        │                   ▲
//	                        └─► tags            └── the result of scanning the paths
//
// An annotation is applied as a whole or not at all. If it breaks rules, the result is one *Error. It is about the
// first value in the text that breaks a rule, and has the position in the JSON. ParseDisks and ParseTags check
// everything that can be checked from the text. After them, Check compares the text with facts that only the node
// knows. Record turns the problems into conditions, and says which of them are new.
//
// Everything here is values in, values out. The package must not know the API server, nor how directories are examined,
// nor when to decide.
package defaults
