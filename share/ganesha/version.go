package ganesha

// Version is the release of NFS-Ganesha in the image. All that this package says of Ganesha is true of this one.
const Version = "4.3"
