package api

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	actionSalvage         = "salvage"
	actionExpand          = "expand"
	actionCancelExpansion = "cancelExpansion"
)

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
		actions: append([]action{
			{"attach", "attachInput", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.AttachInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.AttachVolume(ctx, id, manager.AttachRequest{
					NodeID: in.HostID, TicketID: in.AttachmentID, Attacher: in.AttacherType,
					DisableFrontend: in.DisableFrontend, AttachedBy: in.AttachedBy,
				}))
			}},
			{"detach", "detachInput", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.DetachInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.DetachVolume(ctx, id, manager.DetachRequest{
					TicketID: in.AttachmentID, NodeID: in.HostID, Force: in.ForceDetach,
				}))
			}},
			{actionSalvage, "salvageInput", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.SalvageInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.SalvageVolume(ctx, id, in.Names))
			}},
			{actionExpand, "expandInput", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				in, err := decodeInput[v1.ExpandInput](body)
				if err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.ExpandVolume(ctx, id, manager.ExpandRequest{Size: string(in.Size), MustFit: in.MustFit}))
			}},
			{actionCancelExpansion, "empty", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
				if _, err := decodeInput[v1.Empty](body); err != nil {
					return nil, err
				}
				return answerVolume(ctx, m)(m.CancelExpansion(ctx, id))
			}},
			{actionTrim, "empty", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
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
		}, volumeUpdates(m)...),
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

// offersOnVolume hides salvage, expand, cancelExpansion and trimFilesystem in the same states in which Longhorn hides
// them.
func offersOnVolume(o v1.Object, action string) bool {
	v, ok := o.(*v1.Volume)
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
		{"updateReplicaCount", "UpdateReplicaCountInput", updating(m, func(in v1.UpdateReplicaCountInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{NumberOfReplicas: &in.ReplicaCount}
		})},
		{"updateDataLocality", "UpdateDataLocalityInput", updating(m, func(in v1.UpdateDataLocalityInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{DataLocality: &in.DataLocality}
		})},
		{"updateAccessMode", "UpdateAccessModeInput", updating(m, func(in v1.UpdateAccessModeInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{AccessMode: &in.AccessMode}
		})},
	}, optionActions(m), []action{
		{"updateNodeSelector", "UpdateNodeSelectorInput", updating(m, func(in v1.UpdateNodeSelectorInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{NodeSelector: &in.NodeSelector}
		})},
		{"updateDiskSelector", "UpdateDiskSelectorInput", updating(m, func(in v1.UpdateDiskSelectorInput) manager.VolumeUpdate {
			return manager.VolumeUpdate{DiskSelector: &in.DiskSelector}
		})},
		{"pvCreate", "PVCreateInput", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
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
		{"pvcCreate", "PVCCreateInput", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
			in, err := decodeInput[v1.PVCCreateInput](body)
			if err == nil && in.Namespace != "" { // the use case refuses an empty namespace
				err = requireRight(ctx, Attributes{Verb: VerbCreate, Group: GroupCore, Resource: "persistentvolumeclaims", Namespace: in.Namespace})
			}
			if err != nil {
				return nil, err
			}
			return answerVolume(ctx, m)(m.CreateClaim(ctx, id, in.Namespace, in.PVCName))
		}},
		{"replicaRemove", "replicaRemoveInput", func(ctx context.Context, id string, body []byte) (v1.Object, error) {
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

func volumeOf(view manager.VolumeView) *v1.Volume {
	v := view.Volume
	wire := &v1.Volume{
		Resource:                v1.Resource{ID: v.Name},
		VolumeLacking:           v1.NoFeatures(),
		KubernetesStatus:        kubernetesStatusOf(view),
		Image:                   view.Image,
		CurrentImage:            view.Image,
		Name:                    v.Name,
		Size:                    decimal(int64(v.Spec.Size)),
		Frontend:                string(v.Spec.Frontend),
		DisableFrontend:         v.Spec.DisableFrontend,
		DataLocality:            string(v.Spec.DataLocality),
		AccessMode:              string(v.Spec.AccessMode),
		DataEngine:              string(v.Spec.DataEngine),
		NumberOfReplicas:        v.Spec.NumberOfReplicas,
		VolumeOptions:           optionsOf(v),
		StaleReplicaTimeout:     v.Spec.StaleReplicaTimeout,
		DiskSelector:            notNil(v.Spec.DiskSelector),
		NodeSelector:            notNil(v.Spec.NodeSelector),
		RevisionCounterDisabled: v.Spec.RevisionCounterDisabled,
		State:                   string(v.Status.State),
		Robustness:              string(view.Robustness),
		ExpansionRequired:       view.ExpansionRequired,
		Created:                 v.CreationTimestamp.UTC().String(),
		LastAttachedBy:          v.Spec.LastAttachedBy,
		LastDegradedAt:          v.Status.LastDegradedAt,
		Conditions:              conditionsOf(v.Status.Conditions),
		StrictLocalNodes:        view.StrictLocalNodes,
		ShareEndpoint:           v.Status.ShareEndpoint,
		ShareState:              string(v.Status.ShareState),
		Ready:                   view.Ready,
		NotReadyMessage:         view.NotReadyMessage,
		Replicas:                make([]v1.Replica, 0, len(view.Replicas)),
		Controllers:             make([]v1.Controller, 0, len(view.Engines)),
		RebuildStatus:           make([]v1.RebuildStatus, 0, len(view.Rebuilds)),
		VolumeAttachment:        *attachmentsOf(view.Attachment),
	}
	if view.Attachment == nil {
		wire.VolumeAttachment.ID, wire.VolumeAttachment.Volume = v.Name, v.Name
	}
	for _, r := range view.Replicas {
		if !r.Removed {
			wire.Replicas = append(wire.Replicas, replicaOf(r, view.Image))
		}
	}
	for i := range view.Unplaced {
		wire.Replicas = append(wire.Replicas, unplacedReplica(v.Name, i))
	}
	for _, e := range view.Engines {
		wire.Controllers = append(wire.Controllers, controllerOf(e, v, view.Image))
	}
	for _, r := range view.Rebuilds {
		wire.RebuildStatus = append(wire.RebuildStatus, v1.RebuildStatus{
			Replica: r.Replica, Error: r.Error, IsRebuilding: r.IsRebuilding, Progress: r.Progress, State: r.State,
			CopyBytes: r.CopyBytes, Partial: r.Partial, FromReplicaList: []string{},
		})
	}
	return wire
}

func replicaOf(r manager.ReplicaView, image string) v1.Replica {
	wire := v1.Replica{
		Name:                r.Name,
		Image:               image,
		CurrentImage:        runningImage(r.Status.InstanceStatus, image),
		HostID:              r.Spec.NodeID,
		Address:             r.Status.IP,
		Running:             isRunning(r.Status.InstanceStatus),
		InstanceManagerName: r.Status.InstanceManagerName,
		DiskID:              r.Spec.DiskID,
		DiskPath:            r.Spec.DiskPath,
		Mode:                r.Mode,
		FailedAt:            r.Spec.FailedAt,
		DataEngine:          string(r.Spec.DataEngine),
	}
	if r.Spec.DiskPath != "" && r.Spec.DataDirectoryName != "" {
		wire.DataPath = types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName)
	}
	return wire
}

// controllerOf returns an engine as a v1.Controller. An engine that does not run has the size with which it will start:
// clients read it to see whether a detached volume has grown.
func controllerOf(e *manager.Engine, v *manager.Volume, image string) v1.Controller {
	size := int64(e.Status.CurrentSize)
	if !isRunning(e.Status.InstanceStatus) {
		size = cmp.Or(int64(v.Status.Size), int64(v.Spec.Size))
	}
	return v1.Controller{
		Name:                e.Name,
		Image:               image,
		CurrentImage:        runningImage(e.Status.InstanceStatus, image),
		HostID:              e.Spec.NodeID,
		Address:             e.Status.IP,
		Running:             isRunning(e.Status.InstanceStatus),
		InstanceManagerName: e.Status.InstanceManagerName,
		Size:                decimal(size),
		ActualSize:          decimal(v.Status.ActualSize),
		Endpoint:            e.Status.Endpoint,
		IsExpanding:         e.Status.IsExpanding,
		LastExpansionError:  e.Status.LastExpansionError, LastExpansionFailedAt: e.Status.LastExpansionFailedAt,
	}
}

// attachmentsOf shows no tickets if there is no VolumeAttachment.
func attachmentsOf(va *manager.VolumeAttachment) *v1.VolumeAttachment {
	wire := &v1.VolumeAttachment{
		Resource:    v1.Resource{Type: v1.TypeVolumeAttachment, Links: map[string]string{}, Actions: map[string]string{}},
		Attachments: map[string]v1.Attachment{},
	}
	if va == nil {
		return wire
	}
	wire.ID, wire.Volume = va.Name, va.Spec.Volume
	for id, ticket := range va.Spec.AttachmentTickets {
		attachment := v1.Attachment{
			AttachmentID:   ticket.ID,
			AttachmentType: string(ticket.Type),
			NodeID:         ticket.NodeID,
			Parameters:     notNilMap(ticket.Parameters),
			Satisfied:      manager.IsSatisfied(va, id),
			Conditions:     []v1.Condition{},
		}
		for _, c := range va.Status.AttachmentTicketStatuses[id].Conditions {
			attachment.Conditions = append(attachment.Conditions, conditionOf(c))
		}
		wire.Attachments[id] = attachment
	}
	return wire
}

// unplacedReplica returns the entry for a replica that the volume should have and that has no place; no object has its
// name.
func unplacedReplica(volume string, i int) v1.Replica {
	return v1.Replica{Name: volume + "-r-unplaced-" + strconv.Itoa(i+1), DataEngine: "v1"}
}

// runningImage returns the image of a running instance; empty if it does not run.
func runningImage(s manager.InstanceStatus, image string) string {
	if isRunning(s) {
		return image
	}
	return ""
}

// kubernetesStatusOf returns the claim and the pods that use a volume, or, if there are none, those that used it last.
func kubernetesStatusOf(view manager.VolumeView) v1.KubernetesStatus {
	last := view.Volume.Status.KubernetesStatus
	status := v1.KubernetesStatus{
		PVName: last.PVName, Namespace: last.Namespace, PVCName: last.PVCName, LastPVCRefAt: last.LastPVCRefAt,
		WorkloadsStatus: make([]v1.WorkloadStatus, 0, len(view.Workloads)),
	}
	if pv := view.PersistentVolume; pv != nil {
		status.PVName, status.PVStatus = pv.Name, string(pv.Status.Phase)
		if claim := pv.Spec.ClaimRef; claim != nil {
			status.Namespace, status.PVCName = claim.Namespace, claim.Name
		}
	}
	for _, w := range view.Workloads {
		status.WorkloadsStatus = append(status.WorkloadsStatus, v1.WorkloadStatus{
			PodName: w.Pod, PodStatus: w.Phase, WorkloadName: w.Owner, WorkloadType: w.OwnerKind,
		})
	}
	if len(view.Workloads) > 0 || last.LastPodRefAt == "" {
		return status
	}
	status.LastPodRefAt = last.LastPodRefAt
	for _, w := range last.WorkloadsStatus {
		status.WorkloadsStatus = append(status.WorkloadsStatus, v1.WorkloadStatus(w))
	}
	return status
}

func isRunning(s manager.InstanceStatus) bool { return s.CurrentState == "running" }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
