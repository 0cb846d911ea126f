package sidecar

import (
	"maps"
	"slices"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/tools/record"
	provision "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func TestIgnoredParametersAreReportedOnceForAClaim(t *testing.T) {
	const prefix = "Warning IgnoredParameters storage class longhorn: these parameters have no effect, because the driver does not support or does not know them: "
	for _, c := range []struct {
		name   string
		params map[string]string
		err    error
		want   []string
	}{
		{name: "all keys are known → silence", params: map[string]string{"known": "1", "fstype": "ext4", "csi.storage.k8s.io/fstype": "ext4"}},
		{name: "keys nobody knows → named, in order", params: map[string]string{"known": "1", "b": "", "a": "x"}, want: []string{prefix + "a, b"}},
		{name: "the volume is not made → silence until it is", params: map[string]string{"a": "x"}, err: status.Error(codes.ResourceExhausted, "full")},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := provisionerOver(t, &fakeDriver{answer: &csipb.Volume{VolumeId: "pvc-u1"}, err: c.err})
			recorder := record.NewFakeRecorder(10)
			p.recorder, p.withoutEffect = recorder, func(params map[string]string) []string {
				rest := maps.Clone(params)
				delete(rest, "known")
				delete(rest, "fstype")
				return slices.Sorted(maps.Keys(rest))
			}
			_, _, err := p.Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(c.params), PVName: "pvc-u1", PVC: claim(nil)})
			require.Equal(t, c.err != nil, err != nil, "%v, %v", err, c.err)
			close(recorder.Events)
			var got []string
			for event := range recorder.Events {
				got = append(got, event)
			}
			assert.Equal(t, c.want, got)
		})
	}
}
