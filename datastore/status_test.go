package datastore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// recordedWrites records the objects whose status is written, and answers with the next resourceVersion.
type recordedWrites struct {
	sent    []*longhorn.Engine
	failure error
}

func (w *recordedWrites) UpdateStatus(_ context.Context, e *longhorn.Engine) (*longhorn.Engine, error) {
	w.sent = append(w.sent, e.DeepCopy())
	stored := e.DeepCopy()
	stored.ResourceVersion = "8"
	return stored, w.failure
}

func TestWriteStatus(t *testing.T) {
	engine := func(version string, s longhorn.EngineStatus) *longhorn.Engine {
		return &longhorn.Engine{ObjectMeta: metav1.ObjectMeta{Name: "e", ResourceVersion: version}, Status: s}
	}
	was := longhorn.EngineStatus{Session: "s1"}
	changed := longhorn.EngineStatus{Session: "s2"}
	cases := []struct {
		name    string
		next    longhorn.EngineStatus
		failure error

		sent      []*longhorn.Engine
		stored    *longhorn.Engine
		isWritten bool
	}{
		{name: "the same status → nothing is sent, and the object is returned", next: was, stored: engine("7", was)},
		{
			name: "an empty map instead of none → the same status",
			next: longhorn.EngineStatus{Session: "s1", ReplicaModeMap: map[string]longhorn.ReplicaMode{}}, stored: engine("7", was),
		},
		{
			name: "another status → it is sent with the version that it is based on", next: changed,
			sent: []*longhorn.Engine{engine("7", changed)}, stored: engine("8", changed), isWritten: true,
		},
		{
			name: "the API server refuses → no object", next: changed, failure: errors.New("conflict"),
			sent: []*longhorn.Engine{engine("7", changed)},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, writes := engine("7", was), &recordedWrites{failure: c.failure}
			stored, isWritten, err := datastore.WriteStatus(t.Context(), writes, e,
				func(e *longhorn.Engine) *longhorn.EngineStatus { return &e.Status }, c.next)
			assert.Equal(t, c.failure, err)
			assert.Equal(t, c.stored, stored)
			assert.Equal(t, c.isWritten, isWritten)
			assert.Equal(t, c.sent, writes.sent)
			assert.Equal(t, engine("7", was), e, "the caller's object is unchanged")
		})
	}
}
