// Package trust is what makes requests to the REST API trustworthy: who sent one (TokenReview), what they may do
// (SubjectAccessReview), and by which certificate a client knows a daemon. It owns the Secret with the daemons' certificate and the
// ConfigMap that clients read. It must not know routes, and it decides about no request: package api does.
//
//	leader:      Authority ──► Secret longhorn-backend-tls    certificate, key, what to trust
//	                     └──► ConfigMap longhorn-backend-ca   what to trust, whether the mode is on
//	any daemon:  Identity reads the Secret; Reviews asks the API server about tokens and rights
//	CSI:         Published reads the ConfigMap
package trust
