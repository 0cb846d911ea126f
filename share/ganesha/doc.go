// Package ganesha has everything that depends on NFS-Ganesha and its release (version.go): its configuration, its
// start, the meaning of its log, and its records of clients on the volume.
//
//	config.go, process.go    the configuration; a server in its own process
//	logfilter.go             its log: this package reads every line, and passes few on
//	recording.go             the lines of the log about clients that cannot be recorded
//	layout.go                the names of files and directories on the volume
//	records.go, adopt.go     whether the last server's records of clients exist, and at which address clients are seen
//	owner.go, count.go       the volume of these records; how many of them the server must find
//	epoch.go, lost.go        the number of each server; records of clients that cannot come back
//	foreign.go, reserve.go   foreign entries are removed; space for the records is reserved
//	wake.go, wake/           the server checks every 0.1 s whether its clients are back
//
// It must not know when a server is started or killed, nor mount anything: package share does this. It must not know
// Kubernetes. About engines it may only know a generation.
package ganesha
