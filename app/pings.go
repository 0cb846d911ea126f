package app

import (
	"os"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
)

// client-go pings the API server on an HTTP/2 connection that has been idle for pingIdle. It closes the connection if
// the answer takes longer than pingTimeout. Only this ends a watch whose server lost its power, because no packet
// reports that. client-go's own values are 30 s and 15 s.
//
// The server's network code answers a ping, however busy the rest of the server is. So 5 s without an answer mean that
// the network is cut, that it loses most packets, or that the server's node stands still. After an outage of 3 s TCP
// repeats a lost packet within 4 s, so the connection survives it. A connection that is closed too early costs only a
// new connection; its watches continue at the same position.
const pingIdle, pingTimeout = 5 * time.Second, 5 * time.Second

// setPings sets these times for all connections that this process opens later. client-go reads them only from the
// environment (k8s.io/apimachinery/pkg/util/net), in whole seconds. A variable that is already set stays unchanged.
func setPings(log *logrus.Entry) {
	for name, d := range map[string]time.Duration{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": pingIdle, "HTTP2_PING_TIMEOUT_SECONDS": pingTimeout,
	} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, strconv.Itoa(int(d.Seconds()))); err != nil {
			log.WithError(err).Warn("A time-out for connections could not be set: this process notices later than usual that the API server does not answer")
		}
	}
}
