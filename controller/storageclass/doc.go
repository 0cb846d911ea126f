// Package storageclass keeps the StorageClass that the ConfigMap longhorn-storageclass
// describes: it makes it when it is missing and brings it back to the text when either
// changes. What others put on it, such as the annotation of the default class, stays.
//
//	ConfigMap ──parse──► wanted ──┐
//	                              ├─plan──► make, update, or delete and make again
//	StorageClass ─────────────────┘
//
// Most fields of a StorageClass cannot change, so it is deleted and made again; volumes and
// claims do not notice. A StorageClass without the label of this installation is left as it
// is, and one whose ConfigMap is gone stays.
//
// Where there is no ConfigMap it is made from the template that the manifest brings, and follows that
// until people change it (template.go).
//
// The package must not know what the parameters mean: the CSI driver judges them.
package storageclass
