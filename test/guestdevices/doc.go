// Package guestdevices runs the tests of packages dataplane/device and dataplane/device/holder in a user-mode Linux
// guest. The guest's kernel has the NBD client, which the test machine's kernel may lack, and the tests use devices of
// that kind. The package has tests only, and needs root and the package user-mode-linux.
package guestdevices
