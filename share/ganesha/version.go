package ganesha

// Version is the release of NFS-Ganesha in the image: all statements of this package about Ganesha are true for it.
// Another release needs the tests of package share with its image (LONGHORN_IMAGE_ROOT), and its number here and in
// deploy/Dockerfile.
const Version = "9.14"

// EarlierVersion is the release in earlier releases' images, and in Debian 12. Each of the two must continue with the
// other's records of clients, because a user may return to the earlier release. It has no parameter that Version does
// not have, and ignores those that it does not know.
const EarlierVersion = "4.3"
