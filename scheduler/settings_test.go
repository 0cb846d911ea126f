package scheduler

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

func TestSettingsOf(t *testing.T) {
	values := func(set map[settings.Name]string) settings.Values {
		return func(name settings.Name) string { return set[name] }
	}
	byDefault := Settings{
		MinimalAvailablePercent: 25, OverProvisioningPercent: 100,
		ZoneSoftAntiAffinity: true, DiskSoftAntiAffinity: true, AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true,
	}
	for _, tc := range []struct {
		name string
		set  map[settings.Name]string
		own  longhorn.VolumeSpec
		want Settings
	}{
		{name: "nothing set → the defaults", want: byDefault},
		{
			name: "each set otherwise → each otherwise",
			set: map[settings.Name]string{
				"storage-minimal-available-percentage": "1", "storage-over-provisioning-percentage": "2", "replica-soft-anti-affinity": "true",
				"replica-zone-soft-anti-affinity": "false", "replica-disk-soft-anti-affinity": "false",
				"allow-empty-node-selector-volume": "false", "allow-empty-disk-selector-volume": "false",
			},
			want: Settings{MinimalAvailablePercent: 1, OverProvisioningPercent: 2, NodeSoftAntiAffinity: true},
		},
		{
			name: "the volume insists on nodes apart → the setting gives way",
			set:  map[settings.Name]string{"replica-soft-anti-affinity": "true"}, own: longhorn.VolumeSpec{ReplicaSoftAntiAffinity: longhorn.AntiAffinityDisabled}, want: byDefault,
		},
		{
			name: "the volume allows one node → the setting gives way",
			own:  longhorn.VolumeSpec{ReplicaSoftAntiAffinity: longhorn.AntiAffinityEnabled}, want: with(byDefault, func(s *Settings) { s.NodeSoftAntiAffinity = true }),
		},
		{
			name: "the volume insists on zones and disks apart → the settings give way",
			own:  longhorn.VolumeSpec{ReplicaZoneSoftAntiAffinity: longhorn.AntiAffinityDisabled, ReplicaDiskSoftAntiAffinity: longhorn.AntiAffinityDisabled},
			want: with(byDefault, func(s *Settings) { s.ZoneSoftAntiAffinity, s.DiskSoftAntiAffinity = false, false }),
		},
		{
			name: "the volume allows one zone and one disk → the settings give way",
			set:  map[settings.Name]string{"replica-zone-soft-anti-affinity": "false", "replica-disk-soft-anti-affinity": "false"},
			own:  longhorn.VolumeSpec{ReplicaZoneSoftAntiAffinity: longhorn.AntiAffinityEnabled, ReplicaDiskSoftAntiAffinity: longhorn.AntiAffinityEnabled},
			want: byDefault,
		},
		{
			name: "the volume follows the settings → they decide",
			set:  map[settings.Name]string{"replica-zone-soft-anti-affinity": "false", "replica-disk-soft-anti-affinity": "false"},
			own: longhorn.VolumeSpec{
				ReplicaSoftAntiAffinity: longhorn.AntiAffinityIgnored, ReplicaZoneSoftAntiAffinity: longhorn.AntiAffinityIgnored, ReplicaDiskSoftAntiAffinity: longhorn.AntiAffinityIgnored,
			},
			want: with(byDefault, func(s *Settings) { s.ZoneSoftAntiAffinity, s.DiskSoftAntiAffinity = false, false }),
		},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, SettingsOf(values(tc.set), &tc.own)) })
	}
}
