package api

import (
	"context"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// findingKind has all findings of the cluster, the worst first.
func findingKind(m *manager.Manager) kind {
	list := func() ([]v1.Object, error) {
		views, err := m.ListFindings()
		return objectsOf(views, findingOf), err
	}
	return kind{
		id: v1.TypeFinding, plural: resourceFindings, wire: v1.Finding{},
		list: func(context.Context) ([]v1.Object, error) { return list() },
		get: func(_ context.Context, id string) (v1.Object, error) {
			all, err := list()
			if err != nil {
				return nil, err
			}
			for _, o := range all {
				if o.Head().ID == id {
					return o, nil
				}
			}
			return nil, notFound(v1.TypeFinding, id)
		},
	}
}

func findingOf(view manager.FindingView) *v1.Finding {
	f := view.Finding
	wire := &v1.Finding{
		Resource: v1.Resource{ID: strings.Join([]string{strings.ReplaceAll(string(f.Object.Kind), " ", ""), f.Object.Name, f.Object.Node, f.Reason}, "_")},
		Object:   v1.FindingObject{Kind: string(f.Object.Kind), Name: f.Object.Name, Node: f.Object.Node, Volume: view.Volume},
		Severity: string(f.Severity), Reason: f.Reason, What: f.What, Why: notNil(f.Why), Next: []v1.Step{},
	}
	for _, step := range f.Next {
		wire.Next = append(wire.Next, v1.Step{Text: step.Text, Command: step.Command})
	}
	return wire
}
