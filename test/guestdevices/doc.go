// Package guestdevices runs the tests of packages dataplane/device and dataplane/device/holder in a user-mode Linux guest, whose kernel has the NBD client that a
// test machine may lack, with devices of that kind. It has tests only, and needs root and the package user-mode-linux.
package guestdevices
