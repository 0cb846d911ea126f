package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// The actions of a volume for its snapshots. snapshotCR* are about the objects, in any state of the volume. The others
// show the same snapshots as Longhorn's engine does.
const (
	actionSnapshotCreate = "snapshotCreate"
	actionSnapshotRevert = "snapshotRevert"

	prefixSnapshot   = "snapshot"
	prefixSnapshotCR = "snapshotCR"
)

// snapshotCRKind has the snapshots of all volumes. Its resources can only be read: the actions of a volume change them.
func snapshotCRKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeSnapshotCR, plural: resourceSnapshotCRs, wire: v1.SnapshotCR{}, view: manager.ViewSnapshots,
		list: func(context.Context) ([]v1.Object, error) {
			list, err := m.ListSnapshots()
			return objectsOf(list, snapshotCROf), err
		},
		get: func(_ context.Context, id string) (v1.Object, error) {
			return objectOf(snapshotCROf)(m.SnapshotByName(id))
		},
		links: func(base string, o v1.Object) map[string]string {
			return map[string]string{"volume": resourceURL(base, resourceVolumes, o.(*v1.SnapshotCR).Volume)}
		},
	}
}

// snapshotActions are the actions of a volume for its snapshots.
func snapshotActions(m *manager.Manager) []action {
	crs := snapshotCRKind(m)
	answerCR := func(s *manager.Snapshot, err error) (v1.Object, error) {
		return own(&crs, http.StatusOK, snapshotCROf)(s, err)
	}
	return []action{
		{name: "snapshotCRCreate", input: "snapshotCRInput", output: v1.TypeSnapshotCR, do: withInput(func(ctx context.Context, id string, in v1.SnapshotCRInput) (v1.Object, error) {
			return answerCR(m.CreateSnapshot(ctx, id, in.Name, in.Labels))
		})},
		{name: "snapshotCRList", input: "empty", output: v1.TypeSnapshotCR, do: withInput(func(ctx context.Context, id string, _ v1.Empty) (v1.Object, error) {
			list, err := m.Snapshots(ctx, id)
			if err != nil {
				return nil, err
			}
			return ownAnswer{write: func(base string) reply {
				return reply{http.StatusOK, crs.collection(base, objectsOf(list, snapshotCROf))}
			}}, nil
		})},
		{name: "snapshotCRGet", input: "snapshotCRInput", output: v1.TypeSnapshotCR, do: withName(func(ctx context.Context, id string, in v1.SnapshotCRInput) (v1.Object, error) {
			return answerCR(m.Snapshot(ctx, id, in.Name))
		})},
		{name: "snapshotCRDelete", input: "snapshotCRInput", output: "empty", do: withName(func(ctx context.Context, id string, in v1.SnapshotCRInput) (v1.Object, error) {
			return deletedCR(ctx, m, id, in.Name)
		})},
		{name: actionSnapshotCreate, input: "snapshotInput", output: v1.TypeSnapshot, do: withInput(func(ctx context.Context, id string, in v1.SnapshotInput) (v1.Object, error) {
			s, isDone, err := m.TakeSnapshot(ctx, id, in.Name, in.Labels)
			status := http.StatusOK
			if !isDone {
				status = http.StatusAccepted
			}
			return own(snapshotLinks, status, snapshotOf)(s, err)
		})},
		{name: "snapshotList", input: "empty", output: v1.TypeSnapshot, do: withInput(func(ctx context.Context, id string, _ v1.Empty) (v1.Object, error) {
			list, err := listSnapshots(ctx, m, id)
			return snapshotCollection(id, list), err
		})},
		{name: "snapshotGet", input: "snapshotInput", output: v1.TypeSnapshot, do: withName(func(ctx context.Context, id string, in v1.SnapshotInput) (v1.Object, error) {
			return findSnapshot(ctx, m, id, in.Name)
		})},
		{name: "snapshotDelete", input: "snapshotInput", output: v1.TypeVolume, do: withName(func(ctx context.Context, id string, in v1.SnapshotInput) (v1.Object, error) {
			if err := m.DeleteSnapshot(ctx, id, in.Name); err != nil {
				return nil, err
			}
			return answerVolume(ctx, m)(m.Volume(ctx, id))
		})},
		{name: actionSnapshotRevert, input: "snapshotInput", output: v1.TypeSnapshot, do: withName(func(ctx context.Context, id string, in v1.SnapshotInput) (v1.Object, error) {
			s, err := m.RevertSnapshot(ctx, id, in.Name)
			return own(snapshotLinks, http.StatusOK, snapshotOf)(s, err)
		})},
		// Replicas free the space of deleted snapshots without a request. The answer says how far they are.
		{name: "snapshotPurge", input: "empty", output: v1.TypeVolume, do: withInput(func(ctx context.Context, id string, _ v1.Empty) (v1.Object, error) {
			return answerVolume(ctx, m)(m.Volume(ctx, id))
		})},
	}
}

// withInput returns the function of an action that decodes its body.
func withInput[In any](do func(ctx context.Context, id string, in In) (v1.Object, error)) func(context.Context, string, []byte) (v1.Object, error) {
	return func(ctx context.Context, id string, body []byte) (v1.Object, error) {
		in, err := decodeInput[In](body)
		if err != nil {
			return nil, err
		}
		return do(ctx, id, in)
	}
}

// withName is withInput for an action that is about an existing snapshot.
func withName[In interface{ SnapshotName() string }](do func(ctx context.Context, id string, in In) (v1.Object, error)) func(context.Context, string, []byte) (v1.Object, error) {
	return withInput(func(ctx context.Context, id string, in In) (v1.Object, error) {
		if in.SnapshotName() == "" {
			return nil, &manager.Invalid{Field: "name", Rule: "is required: the name of a snapshot"}
		}
		return do(ctx, id, in)
	})
}

// deletedCR answers nothing. As in Longhorn, it is not an error if the snapshot does not exist.
func deletedCR(ctx context.Context, m *manager.Manager, volume, name string) (v1.Object, error) {
	if _, err := m.Snapshots(ctx, volume); err != nil {
		return nil, err
	}
	if err := m.DeleteSnapshot(ctx, volume, name); err != nil && !errors.Is(err, manager.ErrNotFound) {
		return nil, err
	}
	return ownAnswer{write: func(string) reply { return reply{status: http.StatusNoContent} }}, nil
}

// linker sets the links of an object.
type linker interface {
	link(base string, object v1.Object)
}

// own returns the answer of an action that is not the resource of the action itself.
func own[W v1.Object](links linker, status int, convert func(*manager.Snapshot) W) func(*manager.Snapshot, error) (v1.Object, error) {
	return func(s *manager.Snapshot, err error) (v1.Object, error) {
		if err != nil {
			return nil, err
		}
		object := convert(s)
		return ownAnswer{write: func(base string) reply {
			links.link(base, object)
			return reply{status, object}
		}}, nil
	}
}

// snapshotLinks links the type snapshot, which has no collection, to the object of the snapshot.
var snapshotLinks linker = linkSnapshot{}

type linkSnapshot struct{}

func (linkSnapshot) link(base string, object v1.Object) {
	head := object.Head()
	head.Type, head.Actions = v1.TypeSnapshot, map[string]string{}
	head.Links = map[string]string{"self": resourceURL(base, strings.ToLower(resourceSnapshotCRs), head.ID)}
}

// listSnapshots returns the snapshots of a volume that have content, the oldest first, and volume-head.
func listSnapshots(ctx context.Context, m *manager.Manager, volume string) ([]*v1.Snapshot, error) {
	taken, head, err := m.TakenSnapshots(ctx, volume)
	if err != nil {
		return nil, err
	}
	list := make([]*v1.Snapshot, 0, len(taken)+1)
	for _, s := range taken {
		list = append(list, snapshotOf(s))
	}
	return append(list, &v1.Snapshot{
		Resource: v1.Resource{ID: v1.VolumeHead}, Name: v1.VolumeHead, Parent: head.Parent, Size: head.Size,
		Children: map[string]bool{}, Labels: map[string]string{},
	}), nil
}

func snapshotCollection(volume string, list []*v1.Snapshot) v1.Object {
	return ownAnswer{write: func(base string) reply {
		c := v1.Collection[v1.Object]{
			Type: v1.TypeCollection, ResourceType: v1.TypeSnapshot, Actions: map[string]string{},
			Links: map[string]string{"self": resourceURL(base, resourceVolumes, volume) + "?action=snapshotList"},
			Data:  make([]v1.Object, 0, len(list)),
		}
		for _, s := range list {
			snapshotLinks.link(base, s)
			c.Data = append(c.Data, s)
		}
		return reply{http.StatusOK, c}
	}}
}

func findSnapshot(ctx context.Context, m *manager.Manager, volume, name string) (v1.Object, error) {
	if name != v1.VolumeHead {
		s, err := m.Snapshot(ctx, volume, name)
		return own(snapshotLinks, http.StatusOK, snapshotOf)(s, err)
	}
	list, err := listSnapshots(ctx, m, volume)
	if err != nil {
		return nil, err
	}
	head := list[len(list)-1]
	return ownAnswer{write: func(base string) reply {
		snapshotLinks.link(base, head)
		return reply{http.StatusOK, head}
	}}, nil
}

func snapshotOf(s *manager.Snapshot) *v1.Snapshot {
	return &v1.Snapshot{
		Resource: v1.Resource{ID: s.Name},
		Name:     s.Name, Parent: s.Status.Parent, Children: notNilMap(s.Status.Children),
		Removed: s.Status.MarkRemoved || s.DeletionTimestamp != nil, UserCreated: s.Status.UserCreated,
		Created: s.Status.CreationTime, Size: decimal(s.Status.Size), Labels: snapshotLabels(s), Checksum: s.Status.Checksum,
	}
}

func snapshotCROf(s *manager.Snapshot) *v1.SnapshotCR {
	return &v1.SnapshotCR{
		Resource: v1.Resource{ID: s.Name},
		Name:     s.Name, CRCreationTime: s.CreationTimestamp.UTC().Format(time.RFC3339),
		Volume: s.Spec.Volume, CreateSnapshot: s.Spec.CreateSnapshot,
		Parent: s.Status.Parent, Children: notNilMap(s.Status.Children),
		MarkRemoved: s.Status.MarkRemoved || s.DeletionTimestamp != nil, UserCreated: s.Status.UserCreated,
		CreationTime: s.Status.CreationTime, Size: s.Status.Size, Labels: snapshotLabels(s), OwnerID: s.Status.OwnerID,
		Error: s.Status.Error, RestoreSize: s.Status.RestoreSize, ReadyToUse: s.Status.ReadyToUse, Checksum: s.Status.Checksum,
		Conditions: conditionsOf(s.Status.Conditions),
	}
}

// snapshotLabels returns the requested labels. A snapshot that was found without an object has only those in its status.
func snapshotLabels(s *manager.Snapshot) map[string]string {
	from := s.Spec.Labels
	if len(from) == 0 {
		from = s.Status.Labels
	}
	labels := make(map[string]string, len(from))
	for key, value := range from {
		labels[key] = string(value)
	}
	return labels
}

// offersSnapshotAction reports whether a volume shows an action for snapshots: in the same states as in Longhorn, and
// a revert also while the volume is detached, when it is possible.
func offersSnapshotAction(v *v1.Volume, action string) bool {
	switch {
	case v.Robustness == "faulted":
		return false
	case strings.HasPrefix(action, prefixSnapshotCR):
		return true
	}
	return v.State == "attached" || v.State == "detached" && action == actionSnapshotRevert
}
