// Package trust makes requests to the REST API trustworthy. It finds out who sent a request (TokenReview) and which
// rights the sender has (SubjectAccessReview). It also maintains the certificate by which a client recognizes a
// daemon. It owns the Secret with the daemons' certificate and the ConfigMap that clients read. It must not know
// routes, and it does not decide about any request: package api does.
//
//	leader:      Authority ──► Secret longhorn-backend-tls    certificate, key, trusted CAs
//	                     └──► ConfigMap longhorn-backend-ca   trusted CAs, whether the mode is on
//	any daemon:  Identity reads the Secret; Reviews asks the API server about tokens and rights
//	CSI:         Published reads the ConfigMap
package trust
