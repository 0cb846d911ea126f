// Package fuse serves one file of a fixed size to the kernel, as a FUSE file system that is mounted nowhere.
//
// It is made for a loop device on that file: nothing is cached on either side, requests are served side by side, and a server can be
// replaced by another, in another process, without the kernel's users noticing more than a pause.
//
//	Mount ── the file system, by /dev/fuse      Server ── reads requests from the descriptor, asks a Backend, replies
//
// A successor gets a descriptor of the same connection after its predecessor has ended, calls Resend once, and serves: the kernel then
// sends again what the predecessor had read and not answered. There is no second INIT; what was agreed on in the first stays.
//
// The package must not know volumes, engines, or who keeps descriptors.
package fuse
