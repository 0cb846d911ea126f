package datastore

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeKey reads the key of a volume's data plane from its Secret. That it is not
// there is an error like any other, not "done": see Needed.
func (d *Datastore) VolumeKey(ctx context.Context, volume string) ([]byte, error) {
	name := types.VolumeSecretName(volume)
	secret, err := d.Secrets.Live(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the key of volume %s: %w", volume, Needed(err))
	}
	key := secret.Data[types.VolumeSecretKey]
	if len(key) == 0 {
		return nil, fmt.Errorf("secret %s has no %q", name, types.VolumeSecretKey)
	}
	return key, nil
}

// Needed returns err such that it no longer counts as apierrors.IsNotFound: for an
// object whose absence is a fault, and does not mean that the work is done.
func Needed(err error) error {
	if apierrors.IsNotFound(err) {
		return errors.New(err.Error())
	}
	return err
}
