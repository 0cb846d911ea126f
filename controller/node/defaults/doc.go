// Package defaults reads what a Kubernetes node says of the disks and tags of the
// Longhorn node of its name, and decides what of it is to be applied:
//
//	setting, label,          Decide           Check
//	annotations,        ───────────► disks ───────────► DiskSpecs by name
//	"has disks/tags"        │                   ▲
//	                        └─► tags            └── what a scan of the paths found
//
// An annotation is taken as a whole or not at all. Whatever breaks a rule gives one
// *Error: of the first value, in the order of the text, that breaks one, with its place
// in the JSON. What must be in the disks and tags themselves is read off the text
// (ParseDisks, ParseTags); what only the node can tell is compared afterwards (Check).
// Record turns what was found wrong into conditions, and says which of them are news.
//
// Everything here is values in, values out. The package must not know the API server,
// nor how directories are examined, nor when a decision is made.
package defaults
