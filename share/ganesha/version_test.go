package ganesha

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheImageHasOnlyThisReleaseOfGanesha(t *testing.T) {
	dockerfile, err := os.ReadFile("../../deploy/Dockerfile")
	require.NoError(t, err)
	assert.Contains(t, string(dockerfile), "RUN ganesha.nfsd -v | grep -F 'NFS-Ganesha Release = V"+Version+"'\n")
}
