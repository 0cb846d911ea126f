package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAWrongCommandLineSaysWhatToGive(t *testing.T) {
	for name, c := range map[string]struct {
		args, want string
	}{
		"a command that does not exist":   {"nosuch", `no such command: "nosuch"; devcluster --help lists them`},
		"a kernel without a number":       {"up --kernel foo", `kernel "foo": give uml=N`},
		"an order that is none":           {"api-server halt", `api-server ["halt"]: give one of: freeze, stop, run`},
		"an order and a word more":        {"api-server stop now", `api-server ["stop" "now"]: give one of`},
		"a state of a disk without DELAY": {"disk guest-1 slow", "a disk is one of: ok, slow DELAY_MS"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"devcluster", "--dir", t.TempDir()}, strings.Fields(c.args)...)
			err := rootCommand().Run(t.Context(), args)
			require.Error(t, err)
			require.True(t, strings.HasPrefix(err.Error(), c.want), err)
		})
	}
}

func TestVariablesAreReplacedNotAdded(t *testing.T) {
	environment := []string{"PATH=/usr/bin", "KUBECONFIG=/home/u/.kube/config", "KUBECONFIGS=x", "HOME=/root"}
	got := withEnv(environment, []string{"KUBECONFIG=/cluster", "PATH=/plugins:/usr/bin"})
	assert.Equal(t, []string{"KUBECONFIGS=x", "HOME=/root", "KUBECONFIG=/cluster", "PATH=/plugins:/usr/bin"}, got)
	assert.Equal(t, "PATH=/usr/bin", environment[0], "the argument is unchanged")
}
