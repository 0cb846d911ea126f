package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// clonesOffered: the manager creates volumes with the content of a snapshot or of another volume. It does not yet. Until
// then the driver refuses such a request after it has checked that the source exists, and does not advertise
// CLONE_VOLUME.
const clonesOffered = false

// dataSource is the source of a volume's content, as the manager gets it: snap://<volume>/<snapshot>, vol://<volume>, or
// "" if none is requested. An id that cannot name a source stays as it is, and checkContent does not find it.
func dataSource(source *csipb.VolumeContentSource) (string, error) {
	switch kind := source.GetType().(type) {
	case *csipb.VolumeContentSource_Snapshot:
		id, err := parseSnapshotID(kind.Snapshot.GetSnapshotId())
		if foreign := (errForeignID{}); errors.As(err, &foreign) {
			return foreign.id, nil
		}
		return id.String(), err
	case *csipb.VolumeContentSource_Volume:
		return schemeVolume + schemeEnd + kind.Volume.GetVolumeId(), nil
	}
	if source != nil {
		return "", fmt.Errorf("volume content source: it must be a snapshot or a volume")
	}
	return "", nil
}

// checkContent checks that the source of a new volume exists, is complete and fits into the volume. A larger volume is
// allowed: the manager expands it when the content is copied.
func (c *controller) checkContent(ctx context.Context, r VolumeRequest) error {
	if r.DataSource == "" {
		return nil
	}
	size, err := c.contentSize(ctx, r)
	switch {
	case err != nil:
		return err
	case !c.clones:
		return status.Errorf(codes.InvalidArgument, "creating volume %s from %s: this release creates only empty volumes", r.Name, r.DataSource)
	case r.SizeBytes < size:
		return status.Errorf(codes.OutOfRange, "creating volume %s from %s: the requested size %s is less than the size of the source, %s",
			r.Name, r.DataSource, types.ExactSizeText(r.SizeBytes), types.ExactSizeText(size))
	}
	return nil
}

// contentSize is the size of a source.
func (c *controller) contentSize(ctx context.Context, r VolumeRequest) (int64, error) {
	notFound := status.Errorf(codes.NotFound, "creating volume %s: the source %s does not exist", r.Name, r.DataSource)
	if name, isVolume := strings.CutPrefix(r.DataSource, schemeVolume+schemeEnd); isVolume {
		if !isVolumeID(name) {
			return 0, notFound
		}
		v, err := c.volumes.Volume(ctx, name)
		if errors.Is(err, ErrNotFound) || err == nil && v.State == stateDeleting {
			return 0, notFound
		}
		return v.SizeBytes, withActionIf(err, "reading volume "+name, name)
	}
	id, err := parseSnapshotID(r.DataSource)
	if err != nil {
		return 0, notFound
	}
	s, err := c.volumes.Snapshot(ctx, id.volume, id.name)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && (s.Removed || s.Volume != id.volume):
		return 0, notFound
	case err != nil:
		return 0, withAction(err, "reading snapshot "+id.name, id.name)
	case !s.Ready:
		return 0, status.Errorf(codes.Aborted, "creating volume %s from %s: the snapshot is not ready: %s", r.Name, r.DataSource, orUnknown(s.NotReadyMessage))
	}
	return s.SizeBytes, nil
}
