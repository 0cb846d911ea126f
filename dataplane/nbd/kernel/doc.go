// Package kernel configures the kernel's NBD client (the nbd module) over generic netlink. It creates block devices
// from sockets. On each socket a Server serves one export, without a handshake (nbd.Server.ServeExport).
//
// A device has one connection. With several connections, the kernel gives a request that takes longer than its timeout
// to another connection. The first connection may still be processing it, so an old write could be applied after a
// newer write. With one connection and no timeout the kernel waits. It sends a request again only after the request's
// connection was replaced (Reconnect); it checks this at intervals of lookAgain.
//
// The package must not know volumes, engines or processes.
package kernel
