// Package page opens the web page of an installation for a user in a terminal. It forwards a port of this machine to a
// daemon, through the API server, and creates a short-lived token of a ServiceAccount with which the user logs in.
//
//	page.go     the steps, and the connection to another daemon after one is lost
//	tunnel.go   one connection: a port of the loopback interface ──► a daemon's pod
//	token.go    the token
//	browser.go  the browser
//
// It uses the user's own rights. The token is printed once, and is never part of an address, an error or a log.
package page
