package datastore

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeKey reads the key of a volume's data plane from its Secret. If the Secret is missing, the error is a
// *types.Refusal with types.ReasonKeyMissing: only an administrator can restore it.
func (d *Datastore) VolumeKey(ctx context.Context, volume string) ([]byte, error) {
	name := types.VolumeSecretName(volume)
	secret, err := d.Secrets.Live(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, &types.Refusal{Reason: types.ReasonKeyMissing, Message: fmt.Sprintf(
			"Secret %s with the key of volume %s does not exist; while the volume is detached, create it again with any 32 random bytes as its data field %q", name, volume, types.VolumeSecretKey,
		)}
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of volume %s: %w", volume, err)
	}
	key := secret.Data[types.VolumeSecretKey]
	if len(key) == 0 {
		return nil, &types.Refusal{Reason: types.ReasonKeyMissing, Message: fmt.Sprintf("Secret %s of volume %s has no data field %q", name, volume, types.VolumeSecretKey)}
	}
	return key, nil
}

// Needed changes err so that it no longer counts as apierrors.IsNotFound. It is for an object that must exist: its
// absence is an error, and does not mean that the work is done.
func Needed(err error) error {
	if apierrors.IsNotFound(err) {
		return errors.New(err.Error())
	}
	return err
}
