package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestTheCPURequestOfANodeIsChangedAndShown(t *testing.T) {
	b := newBench(t, build.Node("n", func(n *longhorn.Node) { n.Spec.InstanceManagerCPURequest = 250 }))
	request := func() int {
		t.Helper()
		b.CatchUp()
		return decoded[v1.Node](t, do(t, b.server, "GET", "/v1/nodes/n", "")).InstanceManagerCPURequest
	}
	assert.Equal(t, 250, request())
	for _, c := range []struct {
		name, body string
		want       int
	}{
		{"left out, as older clients do → it stays", `{"allowScheduling":true}`, 250},
		{"another one → it is changed", `{"allowScheduling":true,"instanceManagerCPURequest":300}`, 300},
		{"0 → the setting counts", `{"allowScheduling":true,"instanceManagerCPURequest":0}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := do(t, b.server, "PUT", "/v1/nodes/n", c.body)
			require.Equal(t, 200, w.Code, w.Body)
			assert.Equal(t, c.want, request())
		})
	}
	w := do(t, b.server, "PUT", "/v1/nodes/n", `{"instanceManagerCPURequest":-1}`)
	require.Equal(t, 422, w.Code)
	assert.Contains(t, w.Body.String(), "must be 0 or greater, in thousandths of a CPU")
}
