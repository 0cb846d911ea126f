// Package ganesha has all that depends on NFS-Ganesha and its release (version.go): how it is configured and started, what its log says, and what
// it keeps of its clients on the volume.
//
//	config.go, process.go    the configuration; a server in a process of its own
//	logfilter.go             its log: each of its lines is heard, few are passed on
//	recording.go             what the log says of clients that cannot be recorded
//	layout.go                the names of what is on the volume
//	records.go, adopt.go     whether the last server's records of its clients are there, and at which address these are seen
//	owner.go, count.go       whose these records are; how many of them the server must find
//	epoch.go, lost.go        the number of each server; records of clients that cannot come back
//	foreign.go, ballast.go   what someone else put there goes; room for the records stays
//	wake.go, wake/           the server looks each 0.1 s whether its clients are back
//
// It must not know when a server is started or killed, nor mount anything: package share does. It must not know Kubernetes or engines beyond a generation.
package ganesha
