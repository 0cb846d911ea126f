package app

import (
	"os"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
)

// client-go pings the API server on an HTTP/2 connection that has carried nothing for pingAfter, and closes the connection if the answer takes
// longer than pingPatience. Only that ends a watch whose server lost its power: no packet says so. client-go's own values are 30 s and 15 s.
//
// The server's network code answers a ping, however busy the rest of the server is. So 5 s without an answer mean that the network is cut, that
// it loses most packets, or that the server's node stands still. After an outage of 3 s TCP repeats a lost packet within 4 s, so the connection
// survives it. A connection that is closed too early costs a new one, and its watches continue where they were.
const pingAfter, pingPatience = 5 * time.Second, 5 * time.Second

// setPings sets these times for all connections that this process makes later. client-go reads them in the environment only
// (k8s.io/apimachinery/pkg/util/net), in whole seconds. A value that is already there stays.
func setPings(log *logrus.Entry) {
	for name, d := range map[string]time.Duration{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": pingAfter, "HTTP2_PING_TIMEOUT_SECONDS": pingPatience,
	} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, strconv.Itoa(int(d.Seconds()))); err != nil {
			log.WithError(err).Warn("A dead API server will be noticed late")
		}
	}
}
