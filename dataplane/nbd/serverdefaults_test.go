package nbd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A handshake has a time limit even if the options set none.
func TestAHandshakeHasATimeByDefault(t *testing.T) {
	assert.Equal(t, 5*time.Second, ServerOptions{}.withDefaults().HandshakeTimeout)
	assert.Equal(t, time.Minute, ServerOptions{HandshakeTimeout: time.Minute}.withDefaults().HandshakeTimeout)
}
