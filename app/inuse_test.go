package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestARefusedStopNamesTheUsersOfTheDevice(t *testing.T) {
	assert.Equal(t, "/dev/longhorn/vol is open", inUse("/dev/longhorn/vol is open", nil))
	assert.Equal(t, "/dev/longhorn/vol is open; it is mounted at /mnt (process 1 systemd), open in process 7 dd",
		inUse("/dev/longhorn/vol is open", []string{"mounted at /mnt (process 1 systemd)", "open in process 7 dd"}))
}
