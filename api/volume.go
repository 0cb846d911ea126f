package api

import (
	"context"
	"maps"
	"slices"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	actionSalvage         = "salvage"
	actionExpand          = "expand"
	actionCancelExpansion = "cancelExpansion"
)

func volumeKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeVolume, plural: "volumes", wire: v1.Volume{}, view: manager.ViewVolumes,
		hints: volumeHints(),
		list: func(ctx context.Context) ([]v1.Object, error) {
			views, err := m.ListVolumes()
			if err != nil {
				return nil, err
			}
			m.FindWorkloads(ctx, views)
			return objectsOf(views, volumeOf), nil
		},
		get: func(ctx context.Context, id string) (v1.Object, error) {
			return answerVolume(ctx, m)(m.Volume(ctx, id))
		},
		create: func(ctx context.Context, body []byte) (v1.Object, error) {
			if err := checkUnsupported(body); err != nil {
				return nil, err
			}
			in, err := decodeResource[v1.VolumeCreate](body, &v1.Volume{}, formerFields...)
			if err != nil {
				return nil, err
			}
			return answerVolume(ctx, m)(m.CreateVolume(ctx, volumeRequest(in)))
		},
		remove: m.DeleteVolume,
		offers: offersOnVolume,
		actions: slices.Concat([]action{
			{name: "attach", input: "attachInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.AttachInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.AttachVolume(ctx, id, manager.AttachRequest{
					NodeID: in.HostID, TicketID: in.AttachmentID, Attacher: in.AttacherType,
					DisableFrontend: in.DisableFrontend, AttachedBy: in.AttachedBy,
				}))
			}},
			{name: "detach", input: "detachInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.DetachInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.DetachVolume(ctx, id, manager.DetachRequest{
					TicketID: in.AttachmentID, NodeID: in.HostID, Force: in.ForceDetach,
				}))
			}},
			{name: actionSalvage, input: "salvageInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.SalvageInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.SalvageVolume(ctx, id, in.Names))
			}},
			{name: actionExpand, input: "expandInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.ExpandInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.ExpandVolume(ctx, id, manager.ExpandRequest{Size: string(in.Size), MustFit: in.MustFit}))
			}},
			{name: actionCancelExpansion, input: "empty", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				if _, err := decodeInput[v1.Empty](body); err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.CancelExpansion(ctx, id))
			}},
			{name: actionTrim, input: "empty", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				if _, err := decodeInput[v1.Empty](body); err != nil {
					return nil, err
				}
				view, isDone, err := m.TrimFilesystem(ctx, id)
				o, err := answerVolume(ctx, m)(view, err)
				if err == nil && !isDone {
					return unfinished{o}, nil
				}
				return o, err
			}},
		}, volumeUpdates(m), snapshotActions(m)),
	}
}

func volumeRequest(in v1.VolumeCreate) manager.VolumeRequest {
	return manager.VolumeRequest{
		Name:                in.Name,
		Size:                string(in.Size),
		NumberOfReplicas:    in.NumberOfReplicas,
		StaleReplicaTimeout: in.StaleReplicaTimeout,
		AccessMode:          in.AccessMode,
		DataLocality:        in.DataLocality,
		Frontend:            in.Frontend,
		DataEngine:          in.DataEngine,
		VolumeOptions:       types.VolumeOptions(in.VolumeCreateOptions),
		DiskSelector:        in.DiskSelector,
		NodeSelector:        in.NodeSelector,
		MustFit:             in.MustFit,
	}
}

// answerVolume completes the view that a use case returned, unless it failed.
func answerVolume(ctx context.Context, m *manager.Manager) func(manager.VolumeView, error) (v1.Object, error) {
	return func(view manager.VolumeView, err error) (v1.Object, error) {
		if err != nil {
			return nil, err
		}
		views := []manager.VolumeView{view}
		m.FindWorkloads(ctx, views)
		return volumeOf(views[0]), nil
	}
}

// volumeHints returns the hints of the schema of a volume.
func volumeHints() map[string]hint {
	hints := map[string]hint{
		"name":                {create: true, required: true, unique: true},
		"size":                {create: true, required: true, def: "100G"},
		"numberOfReplicas":    {create: true, required: true, def: 2},
		"staleReplicaTimeout": {create: true, def: 2880},
		"accessMode":          {create: true, def: "rwo", options: []string{"rwo", "rwop", "rwx"}},
		"dataLocality":        {create: true, options: []string{"disabled", "best-effort", "strict-local"}},
		"frontend":            {create: true, options: []string{"blockdev"}},
		"dataEngine":          {create: true, def: "v1", options: []string{"v1"}},
		"diskSelector":        {create: true},
		"nodeSelector":        {create: true},
		"conditions":          {typ: "map[volumeCondition]"},
	}
	maps.Copy(hints, optionHints())
	return hints
}

// offersOnVolume hides salvage, expand, cancelExpansion, trimFilesystem and the actions for snapshots in the same states
// in which Longhorn hides them.
func offersOnVolume(o v1.Object, action string) bool {
	v, ok := o.(*v1.Volume)
	if ok && strings.HasPrefix(action, prefixSnapshot) {
		return offersSnapshotAction(v, action)
	}
	if !ok || action != actionSalvage && action != actionExpand && action != actionCancelExpansion && action != actionTrim {
		return true
	}
	switch isFaulted := v.Robustness == "faulted"; {
	case isFaulted, action == actionSalvage:
		return isFaulted == (action == actionSalvage)
	case action == actionTrim:
		return v.State == "attached"
	case v.State == "attaching":
		return action == actionCancelExpansion
	}
	return v.State == "attached" || v.State == "detached"
}

// volumeUpdates are the actions that change a volume's spec or remove one of its replicas.
func volumeUpdates(m *manager.Manager) []action {
	return slices.Concat([]action{
		{name: "updateReplicaCount", input: "UpdateReplicaCountInput", do: updating(m, func(in v1.UpdateReplicaCountInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{NumberOfReplicas: &in.ReplicaCount}
		})},
		{name: "updateDataLocality", input: "UpdateDataLocalityInput", do: updating(m, func(in v1.UpdateDataLocalityInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{DataLocality: &in.DataLocality}
		})},
		{name: "updateAccessMode", input: "UpdateAccessModeInput", do: updating(m, func(in v1.UpdateAccessModeInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{AccessMode: &in.AccessMode}
		})},
	}, optionActions(m), []action{
		{name: "updateNodeSelector", input: "UpdateNodeSelectorInput", do: updating(m, func(in v1.UpdateNodeSelectorInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{NodeSelector: &in.NodeSelector}
		})},
		{name: "updateDiskSelector", input: "UpdateDiskSelectorInput", do: updating(m, func(in v1.UpdateDiskSelectorInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{DiskSelector: &in.DiskSelector}
		})},
		{name: "pvCreate", input: "PVCreateInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
			in, err := decodeInput[v1.PVCreateInput](body)
			if err == nil {
				err = requireRight(ctx, Attributes{Verb: VerbCreate, Group: GroupCore, Resource: "persistentvolumes", Namespace: NoNamespace})
			}
			if err != nil {
				return nil, err
			}
			return answerVolume(ctx, m)(m.CreatePersistentVolume(ctx, id, manager.PersistentVolumeRequest{
				Name: in.PVName, FSType: in.FSType, Secret: in.SecretName, SecretNamespace: in.SecretNamespace, StorageClass: in.StorageClassName,
			}))
		}},
		{name: "pvcCreate", input: "PVCCreateInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
			in, err := decodeInput[v1.PVCCreateInput](body)
			if err == nil && in.Namespace != "" { // the use case refuses an empty namespace
				err = requireRight(ctx, Attributes{Verb: VerbCreate, Group: GroupCore, Resource: "persistentvolumeclaims", Namespace: in.Namespace})
			}
			if err != nil {
				return nil, err
			}
			return answerVolume(ctx, m)(m.CreateClaim(ctx, id, in.Namespace, in.PVCName))
		}},
		{name: "replicaRemove", input: "replicaRemoveInput", do: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
			in, err := decodeInput[v1.ReplicaRemoveInput](body)
			if err != nil {
				return nil, err
			}
			return answerVolume(ctx, m)(m.RemoveReplica(ctx, id, in.Name))
		}},
	})
}

// updating returns the function of an action that changes a volume according to its input.
func updating[In any](m *manager.Manager, update func(In) manager.VolumeUpdate) func(context.Context, string, []byte) (v1.Object, error) {
	return func(ctx context.Context, id string, body []byte) (v1.Object, error) {
		in, err := decodeInput[In](body)
		if err != nil {
			return nil, err
		}
		return answerVolume(ctx, m)(m.UpdateVolume(ctx, id, update(in)))
	}
}

func volumeAttachmentKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeVolumeAttachment, plural: "volumeAttachments", wire: v1.VolumeAttachment{}, view: manager.ViewVolumeAttachments,
		list: func(context.Context) ([]v1.Object, error) {
			list, err := m.VolumeAttachments()
			return objectsOf(list, attachmentsOf), err
		},
		get: func(_ context.Context, id string) (v1.Object, error) {
			return objectOf(attachmentsOf)(m.VolumeAttachment(id))
		},
	}
}
