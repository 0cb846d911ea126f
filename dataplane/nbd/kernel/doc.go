// Package kernel configures the kernel's NBD client (the nbd module) over generic netlink: it makes block devices of sockets on which a
// Server serves one export each, without a handshake (nbd.Server.ServeExport).
//
// A device has one connection. With several, the kernel gives a request that takes longer than its timeout to another connection while the
// first may still be at it, so that an old write could be applied after a newer one. With one connection and no timeout it waits, and sends
// a request again only when its connection was replaced (Reconnect); it looks whether that happened each lookAgain.
//
// It must not know volumes, engines or processes.
package kernel
