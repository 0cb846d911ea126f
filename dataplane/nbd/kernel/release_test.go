package kernel

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKernelsThatReportTheOwnersOfDevices(t *testing.T) {
	for release, want := range map[string]bool{
		"4.19.0-27-amd64": false, "5.4.0": false, "5.13.19": false, "5.14.0-503.el9": true, "5.15": true, "6.1.0": true, "6.18-rc1": true, "strange": true,
	} {
		assert.Equal(t, want, namesOwners(release), release)
	}
}
