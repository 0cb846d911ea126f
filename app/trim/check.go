package trim

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// Checked returns an Options.Run that trims a volume only if the volume's current state, as live returns it, allows a
// trim on this node. The leader made the same check before it sent the request, but a client can also send a request
// directly.
func Checked(node string, live func(ctx context.Context, volume string) (*longhorn.Volume, error), run func(context.Context, string) (int64, error)) func(context.Context, string) (int64, error) {
	return func(ctx context.Context, volume string) (int64, error) {
		v, err := read(ctx, volume, live)
		switch {
		case apierrors.IsNotFound(err):
			return 0, &manager.Problem{Class: manager.ErrNotFound, Text: fmt.Sprintf("volume %q does not exist", volume)}
		case err != nil:
			return 0, &manager.Problem{Class: manager.ErrUnavailable, Text: fmt.Sprintf("volume %q was not trimmed: the API server did not return the volume; try again", volume), Cause: err}
		}
		why := manager.NotTrimmable(v)
		if why == "" && v.Status.CurrentNodeID != node {
			why = fmt.Sprintf("it is attached to node %q, and not to node %q", v.Status.CurrentNodeID, node)
		}
		if why != "" {
			return 0, &manager.Problem{Class: manager.ErrConflict, Text: fmt.Sprintf("volume %q cannot be trimmed: %s", volume, why)}
		}
		return run(ctx, volume)
	}
}

// readTimeout bounds the read of a volume.
const readTimeout = 10 * time.Second

func read(ctx context.Context, volume string, live func(context.Context, string) (*longhorn.Volume, error)) (*longhorn.Volume, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return live(ctx, volume)
}
