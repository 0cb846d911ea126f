package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestADaemonOutsideAClusterIsToldToNameAKubeconfig(t *testing.T) {
	outsidePods(t)
	_, err := configOf("")
	assert.ErrorContains(t, err, "outside a cluster, name a file with --kubeconfig")
}
