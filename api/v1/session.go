package v1

// TypeSession is the type of a Session.
const TypeSession = "session"

// Login is the body of POST /v1/login.
type Login struct {
	// Token is a bearer token for the audience of the REST API.
	Token string `json:"token"`
}

// Session is the answer of GET /v1/session and POST /v1/login.
type Session struct {
	Resource
	// User is the sender of the request, as the API server names it; empty: no user is logged in.
	User string `json:"user"`
	// TrustedNetwork: requests are answered without a credential, so no login is needed.
	TrustedNetwork bool `json:"trustedNetwork"`
}
