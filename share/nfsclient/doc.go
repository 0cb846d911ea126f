// Package nfsclient checks whether an NFSv4 server answers. It uses only the few ONC RPC and NFS messages that this
// needs. NULL shows whether the server answers at all. LOOKUP shows whether it reaches the file system of an export. It
// is the only place in the repository that builds and parses these messages. The share manager uses it to ask its
// server, and the CSI plugin to ask the server behind a Service.
//
// It trusts no answer: sizes are limited, and a message that is not an answer to the call is an error. It must not know
// shares, Ganesha or Kubernetes.
package nfsclient
