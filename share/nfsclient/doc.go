// Package nfsclient asks an NFSv4 server for answers, in the few words of ONC RPC and NFS that this needs: does it answer at all (NULL), and does
// it reach the file system of an export (LOOKUP). It is the one place of the repository where these messages are built and read: the share
// manager asks its server, the CSI plugin the server behind a Service.
//
// It believes no answer: sizes are bounded, and what is not an answer to the call is an error. It must not know shares, Ganesha or Kubernetes.
package nfsclient
