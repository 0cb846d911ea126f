// Package fuse serves one file of a fixed size to the kernel, as a FUSE file system whose mount has no path.
//
// It is intended for a loop device on that file. Neither side caches anything, and requests are served concurrently.
// Another server, in another process, can replace a server; the kernel's users notice only a pause.
//
//	Mount ── the file system, by /dev/fuse      Server ── reads requests from the descriptor, asks a Backend, replies
//
// A successor gets a descriptor of the same connection after its predecessor has ended, calls Resend once, and serves.
// The kernel then sends the requests again that the predecessor had read and not answered. There is no second INIT; the
// result of the first INIT stays valid.
//
// The package must not know volumes, engines, or which process keeps descriptors.
package fuse
