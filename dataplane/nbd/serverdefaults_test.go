package nbd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A handshake is bounded where nobody says how.
func TestAHandshakeHasATimeByDefault(t *testing.T) {
	assert.Equal(t, 5*time.Second, ServerOptions{}.withDefaults().HandshakeTimeout)
	assert.Equal(t, time.Minute, ServerOptions{HandshakeTimeout: time.Minute}.withDefaults().HandshakeTimeout)
}
