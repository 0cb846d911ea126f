package api

import (
	"context"
	"fmt"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// optionUpdates are the options that have an action: clients can change them in an existing volume.
var optionUpdates = []optionUpdate{
	updateOf("replicaSoftAntiAffinity", func(in v1.UpdateReplicaSoftAntiAffinityInput) string { return in.ReplicaSoftAntiAffinity }),
	updateOf("replicaZoneSoftAntiAffinity", func(in v1.UpdateReplicaZoneSoftAntiAffinityInput) string { return in.ReplicaZoneSoftAntiAffinity }),
	updateOf("replicaDiskSoftAntiAffinity", func(in v1.UpdateReplicaDiskSoftAntiAffinityInput) string { return in.ReplicaDiskSoftAntiAffinity }),
	updateOf("replicaAutoBalance", func(in v1.UpdateReplicaAutoBalanceInput) string { return in.ReplicaAutoBalance }),
}

// optionUpdate is the action update<Option> that changes one option. Its input, Update<Option>Input, has only this
// option.
type optionUpdate struct {
	option types.VolumeOption
	wire   any // the struct of the input
	do     func(*manager.Manager) func(context.Context, string, []byte) (v1.Object, error)
}

func updateOf[In any](option string, value func(In) string) optionUpdate {
	o, ok := types.FindVolumeOption(option)
	if !ok {
		panic(fmt.Sprintf("BUG: an action changes the option %s, which does not exist", option))
	}
	var wire In
	return optionUpdate{option: o, wire: wire, do: func(m *manager.Manager) func(context.Context, string, []byte) (v1.Object, error) {
		return updating(m, func(in In) manager.VolumeUpdate {
			return manager.VolumeUpdate{Options: map[string]string{option: value(in)}}
		})
	}}
}

// title returns the option's name with a capital letter, as it is in the names of the action and of its input.
func (u optionUpdate) title() string { return strings.ToUpper(u.option.Name[:1]) + u.option.Name[1:] }

func (u optionUpdate) inputID() string { return "Update" + u.title() + "Input" }

// optionActions returns the actions of all options.
func optionActions(m *manager.Manager) []action {
	actions := make([]action, len(optionUpdates))
	for i, u := range optionUpdates {
		actions[i] = action{name: "update" + u.title(), input: u.inputID(), do: u.do(m)}
	}
	return actions
}

// optionInputs returns the schemas of the inputs of optionActions.
func optionInputs() []plainType {
	inputs := make([]plainType, len(optionUpdates))
	for i, u := range optionUpdates {
		inputs[i] = plainType{
			id: u.inputID(), input: true, wire: u.wire,
			hints: map[string]hint{u.option.Name: {required: true, options: u.option.Values}},
		}
	}
	return inputs
}

// optionHints returns the hints for all options in the schema of a volume.
func optionHints() map[string]hint {
	hints := map[string]hint{}
	for _, o := range types.VolumeOptionTable {
		hints[o.Name] = hint{create: true, def: o.Values[0], options: o.Values}
	}
	return hints
}

// optionsOf returns the options of a volume. An empty option is from a release that did not know it.
func optionsOf(v *manager.Volume) v1.VolumeOptions {
	options := types.VolumeOptionsOf(&v.Spec)
	types.FillVolumeOptions(&options)
	return v1.VolumeOptions(options)
}
