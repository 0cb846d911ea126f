package app

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
)

func TestTheClientsVersionNeedsNoCluster(t *testing.T) {
	defer func(version string) { Version = version }(Version)
	Version = "v1.2.3"
	out, err := runPlugin(t, "version", "--client", "--kubeconfig", "/nonexistent")
	require.NoError(t, err)
	assert.Equal(t, "Client:      v1.2.3\n", out)
}

func TestWithoutAClusterTheClientsVersionIsShownAndTheErrorReturned(t *testing.T) {
	defer func(version string) { Version = version }(Version)
	Version = "v1.2.3"
	out, err := runPlugin(t, "version", "--kubeconfig", "/nonexistent")
	assert.ErrorContains(t, err, "kubeconfig /nonexistent does not exist")
	assert.Equal(t, "Client:      v1.2.3\n", out)
	out, err = runPlugin(t, "version", "-o", "json", "--kubeconfig", "/nonexistent")
	assert.Error(t, err)
	var v inspect.Versions
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	assert.Equal(t, inspect.Versions{Client: "v1.2.3"}, v)
}
