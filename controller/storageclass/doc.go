// Package storageclass manages the StorageClass that the ConfigMap longhorn-storageclass describes. It creates the
// StorageClass when it is missing, and restores it to the text when either changes. Metadata that others add to it,
// such as the annotation of the default class, stays.
//
//	ConfigMap ──parse──► wanted ──┐
//	                              ├─plan──► create, update, or delete and create again
//	StorageClass ─────────────────┘
//
// Most fields of a StorageClass cannot change, so it is deleted and created again; volumes and claims do not notice.
// A StorageClass without the label of this installation is left unchanged. After its ConfigMap is gone, a
// StorageClass stays.
//
// If the ConfigMap is missing, the package creates it from the template in the manifest. The ConfigMap follows the
// template until a user changes the ConfigMap (template.go).
//
// The package must not know the meaning of the parameters: the CSI driver checks them.
package storageclass
