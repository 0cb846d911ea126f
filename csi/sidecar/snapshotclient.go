package sidecar

import (
	"context"
	"fmt"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	snapshotlisters "github.com/kubernetes-csi/external-snapshotter/client/v8/listers/volumesnapshot/v1"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/snapshotter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
)

// eventSnapshotDeleteError is the reason of the library's Event about a failed deletion, which lacks the driver's text.
const eventSnapshotDeleteError = "SnapshotDeleteError"

// snapshotClient is the library's interface to the driver, over an existing connection. The contexts of the library
// do not end with the process's work. end does, and then stops the calls.
type snapshotClient struct {
	end        context.Context //nolint:containedctx // see above
	conn       *grpc.ClientConn
	driverName string
	canList    bool
	contents   snapshotlisters.VolumeSnapshotContentLister
	recorder   record.EventRecorder
	// failures are by the name or the id of the snapshot.
	failures repeatedTexts
}

var _ snapshotter.Snapshotter = (*snapshotClient)(nil)

// CreateSnapshot implements the library's Snapshotter.
func (c *snapshotClient) CreateSnapshot(
	ctx context.Context, name, volume string, parameters, secrets map[string]string,
) (driverName, id string, takenAt time.Time, sizeBytes int64, ready bool, err error) {
	ctx, cancel := endWith(ctx, c.end)
	defer cancel()
	response, err := csipb.NewControllerClient(c.conn).CreateSnapshot(ctx, &csipb.CreateSnapshotRequest{
		SourceVolumeId: volume, Name: name, Parameters: parameters, Secrets: secrets,
	})
	if err != nil {
		return "", "", time.Time{}, 0, false, c.failure(name, err)
	}
	c.failures.forget(name)
	s := response.GetSnapshot()
	return c.driverName, s.GetSnapshotId(), s.GetCreationTime().AsTime(), s.GetSizeBytes(), s.GetReadyToUse(), nil
}

// DeleteSnapshot implements the library's Snapshotter.
func (c *snapshotClient) DeleteSnapshot(ctx context.Context, id string, secrets map[string]string) error {
	ctx, cancel := endWith(ctx, c.end)
	defer cancel()
	_, err := csipb.NewControllerClient(c.conn).DeleteSnapshot(ctx, &csipb.DeleteSnapshotRequest{SnapshotId: id, Secrets: secrets})
	if err != nil {
		failure := c.failure(id, err)
		c.reportFailedDeletion(id, failure)
		return failure
	}
	c.failures.forget(id)
	return nil
}

// reportFailedDeletion gives the driver's text to the user: the library reports only that the deletion failed.
func (c *snapshotClient) reportFailedDeletion(id string, failure error) {
	if c.end.Err() != nil {
		return
	}
	contents, err := c.contents.List(labels.Everything())
	if err != nil {
		return // a list from memory
	}
	for _, content := range contents {
		if content.Spec.Driver == c.driverName && content.DeletionTimestamp != nil && handleOf(content) == id {
			c.recorder.Event(content, corev1.EventTypeWarning, eventSnapshotDeleteError, failure.Error())
		}
	}
}

// GetSnapshotStatus implements the library's Snapshotter. The library asks for the snapshots of contents that a user
// created for an id.
func (c *snapshotClient) GetSnapshotStatus(
	ctx context.Context, id string, secrets map[string]string,
) (ready bool, takenAt time.Time, sizeBytes int64, group string, err error) {
	if !c.canList {
		return true, time.Time{}, 0, "", nil
	}
	ctx, cancel := endWith(ctx, c.end)
	defer cancel()
	response, err := csipb.NewControllerClient(c.conn).ListSnapshots(ctx, &csipb.ListSnapshotsRequest{SnapshotId: id, Secrets: secrets})
	if err != nil {
		return false, time.Time{}, 0, "", c.failure(id, err)
	}
	c.failures.forget(id)
	if len(response.GetEntries()) == 0 {
		return false, time.Time{}, 0, "", fmt.Errorf("snapshot %q does not exist", id)
	}
	s := response.GetEntries()[0].GetSnapshot()
	return s.GetReadyToUse(), s.GetCreationTime().AsTime(), s.GetSizeBytes(), s.GetGroupSnapshotId(), nil
}

// failure is an error of a call. If it differs from the last one only in figures, it has the same text: the library
// writes each new text into the content's status.
func (c *snapshotClient) failure(key string, err error) error {
	return &callError{status: status.Convert(err), text: c.failures.text(key, messageOf(err))}
}

// endWith is ctx, but it also ends with another context.
func endWith(ctx, end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(end, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
