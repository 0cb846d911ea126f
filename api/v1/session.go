package v1

// TypeSession is the type of a Session.
const TypeSession = "session"

// Login is the body of POST /v1/login.
type Login struct {
	// Token is a bearer token for the audience of the REST API.
	Token string `json:"token"`
}

// Session is what GET /v1/session and POST /v1/login answer.
type Session struct {
	Resource
	// User is who sent the request, as the API server names them; empty: nobody is logged in.
	User string `json:"user"`
	// TrustedNetwork: requests are answered without a credential, so nobody need log in.
	TrustedNetwork bool `json:"trustedNetwork"`
}
