package api

import (
	"context"
	"net/http"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

func nodeKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeNode, plural: "nodes", wire: v1.Node{}, view: manager.ViewNodes,
		hints: map[string]hint{
			"allowScheduling":   {update: true},
			"evictionRequested": {update: true},
			"tags":              {update: true},

			"instanceManagerCPURequest": {update: true},
			"conditions":                {typ: "map[nodeCondition]"},
		},
		list: func(context.Context) ([]v1.Object, error) {
			views, err := m.ListNodes()
			return objectsOf(views, nodeOf), err
		},
		get: func(_ context.Context, id string) (v1.Object, error) {
			return objectOf(nodeOf)(m.Node(id))
		},
		update: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
			in, err := decodeResource[v1.NodeUpdate](body, &v1.Node{})
			if err != nil {
				return nil, err
			}
			return objectOf(nodeOf)(m.UpdateNode(ctx, id, manager.NodeUpdate{
				AllowScheduling: in.AllowScheduling, EvictionRequested: in.EvictionRequested, Tags: in.Tags,
				InstanceManagerCPURequest: in.InstanceManagerCPURequest,
				IfSpecVersion:             ifSpecVersion(ctx),
			}))
		},
		remove: m.DeleteNode,
		actions: []action{
			{name: "diskUpdate", input: "diskUpdateInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				disks, err := disksOf(body)
				if err != nil {
					return nil, err
				}
				return objectOf(nodeOf)(m.UpdateDisks(ctx, id, manager.DisksUpdate{Disks: disks, IfSpecVersion: ifSpecVersion(ctx)}))
			}},
		},
	}
}

// disksOf reads the disks of a diskUpdate. The key must be there: if a body without the key meant "no disks", it would
// remove all disks.
func disksOf(body []byte) (map[string]manager.DiskSpec, error) {
	in, err := decodeInput[v1.DiskUpdateInput](body)
	if err != nil {
		return nil, err
	}
	if err := checkDiskKeys(body); err != nil {
		return nil, err
	}
	if in.Disks == nil {
		return nil, &manager.Invalid{Field: "disks", Rule: "is required: a map of all disks of the node by name"}
	}
	disks := make(map[string]manager.DiskSpec, len(in.Disks))
	for name, d := range in.Disks {
		disks[name] = manager.DiskSpec{
			Type: manager.DiskType(d.DiskType), Driver: d.DiskDriver, Path: d.Path, AllowScheduling: d.AllowScheduling,
			EvictionRequested: d.EvictionRequested, StorageReserved: d.StorageReserved, Tags: d.Tags,
		}
	}
	return disks, nil
}

// specVersionKey is the key in a request's context of the version of the spec that the client wants to change.
type specVersionKey struct{}

// conditional returns the context of a request's change, with the version that the client read, if the request has one.
func conditional(r *http.Request) context.Context {
	return context.WithValue(r.Context(), specVersionKey{}, r.URL.Query().Get(v1.ParamIfSpecVersion))
}

func ifSpecVersion(ctx context.Context) string {
	version, _ := ctx.Value(specVersionKey{}).(string)
	return version
}

func nodeOf(view manager.NodeView) *v1.Node {
	n := view.Node
	wire := &v1.Node{
		Resource:          v1.Resource{ID: n.Name},
		Name:              n.Name,
		Address:           view.Address,
		AllowScheduling:   n.Spec.AllowScheduling,
		EvictionRequested: n.Spec.EvictionRequested,
		Tags:              notNil(n.Spec.Tags),
		Region:            n.Status.Region,
		Zone:              n.Status.Zone,
		Conditions:        conditionsOf(n.Status.Conditions),
		SpecVersion:       view.SpecVersion,

		InstanceManagerCPURequest: n.Spec.InstanceManagerCPURequest,

		Disks: make(map[string]v1.DiskInfo, len(n.Spec.Disks)),
	}
	for name, spec := range n.Spec.Disks {
		status := n.Status.DiskStatus[name]
		wire.Disks[name] = v1.DiskInfo{
			DiskUpdate: v1.DiskUpdate{
				Path: spec.Path, DiskType: string(spec.Type), DiskDriver: spec.Driver, AllowScheduling: spec.AllowScheduling,
				EvictionRequested: spec.EvictionRequested, StorageReserved: spec.StorageReserved, Tags: notNil(spec.Tags),
			},
			Conditions:            conditionsOf(status.Conditions),
			StorageAvailable:      status.StorageAvailable,
			StorageScheduled:      status.StorageScheduled,
			StorageMaximum:        status.StorageMaximum,
			ScheduledReplica:      notNilMap(status.ScheduledReplica),
			ScheduledBackingImage: map[string]int64{},
			HealthData:            map[string]string{},
			DiskUUID:              status.DiskUUID,
			FilesystemType:        status.FSType,
		}
	}
	return wire
}
