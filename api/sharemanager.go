package api

import (
	"context"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// shareManagerKind can only be read: the volume's access mode decides whether there is a share manager.
func shareManagerKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeShareManager, plural: "shareManagers", wire: v1.ShareManager{}, view: manager.ViewShareManagers,
		list: func(context.Context) ([]v1.Object, error) {
			shares, err := m.ListShareManagers()
			return objectsOf(shares, shareManagerOf), err
		},
		get: func(_ context.Context, id string) (v1.Object, error) {
			return objectOf(shareManagerOf)(m.ShareManager(id))
		},
		links: func(base string, o v1.Object) map[string]string {
			return map[string]string{"volume": resourceURL(base, "volumes", o.Head().ID)}
		},
	}
}

func shareManagerOf(s *manager.ShareManager) *v1.ShareManager {
	return &v1.ShareManager{
		Resource:     v1.Resource{ID: s.Name},
		Name:         s.Name,
		State:        string(s.Status.State),
		Endpoint:     s.Status.Endpoint,
		Image:        s.Spec.Image,
		CurrentImage: s.Status.CurrentImage,
		NodeID:       s.Status.CurrentNode,
		Conditions:   conditionsOf(s.Status.Conditions),
	}
}
