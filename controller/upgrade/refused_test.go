package upgrade

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestARefusedTurnIsAnEventOnce(t *testing.T) {
	h, c, _ := begin(t, longhorn.VolumeRobustnessHealthy)
	refused := apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, types.UpgradeLeaseName, errors.New("exceeded quota"))
	h.Fail("create", "leases", refused, refused)
	for range 2 {
		_, err := c.takeTurn(t.Context())
		require.ErrorIs(t, err, refused)
	}
	h.ExpectEvents("Warning ChildRefused " + types.InstanceManagerName("node-1") + ": create leases.coordination.k8s.io " + types.UpgradeLeaseName +
		`: leases.coordination.k8s.io "` + types.UpgradeLeaseName + `" is forbidden: exceeded quota`)
}
