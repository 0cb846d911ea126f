// Package mount is what the node service does to a node's mount table and block
// devices: it formats, mounts, binds, unmounts and looks. It wraps k8s.io/mount-utils
// in verbs that may be repeated, so that the steps of staging read as such, and it is
// the only place that touches the host: the mounter, the commands and the file system
// are handed in, and tests hand in fakes.
//
// It must not know volumes, the CSI or where devices come from.
package mount
