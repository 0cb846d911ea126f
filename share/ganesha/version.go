package ganesha

// Version is the release of NFS-Ganesha in the image: all that this package says of Ganesha is true of it. Another one needs the tests of
// package share with its image (LONGHORN_IMAGE_ROOT), and its number here and in deploy/Dockerfile.
const Version = "9.14"

// EarlierVersion is the one of earlier releases' images, and of Debian 12. Each must go on with the other's records of clients, since an update
// may be taken back. It has no parameter that Version does not have, and skips those that it does not know.
const EarlierVersion = "4.3"
