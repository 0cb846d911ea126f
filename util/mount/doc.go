// Package mount is what the node service of the CSI and a share manager do to mount
// tables and block devices: it formats, mounts, binds, grows, unmounts and looks. It
// wraps k8s.io/mount-utils in verbs that may be repeated, so that the steps of its
// callers read as such, and only it touches the host: callers pass in the mounter, the
// commands and the file system, and tests pass in fakes.
//
// It must not know volumes, the CSI or where devices come from.
package mount
