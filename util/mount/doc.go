// Package mount has the operations of the CSI node service and of a share manager on mount tables and block devices:
// format, mount, bind, grow, unmount and examine. It wraps k8s.io/mount-utils in verbs that may be repeated, so that
// the steps of its callers are easy to read. Only this package touches the host: callers pass in the mounter, the
// commands and the file system, and tests pass in fakes.
//
// It must not know volumes, the CSI or where devices come from.
package mount
