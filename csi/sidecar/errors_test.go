package sidecar

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	provision "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func TestPlainErrors(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	plain := errors.New("x")
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		code codes.Code
		want string
	}{
		{"success", t.Context(), nil, codes.OK, ""},
		{"an answer of the driver → its own words and its code", t.Context(), status.Error(codes.ResourceExhausted, "volume v: no room"), codes.ResourceExhausted, "volume v: no room"},
		{"no answer in time → the call is named", ended, status.Error(codes.Canceled, "context canceled"), codes.Canceled, "CreateVolume: the driver did not answer: context canceled"},
		{"no error of a call → as it is", t.Context(), plain, codes.Unknown, "x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := plainErrors(c.ctx, "/csi.v1.Controller/CreateVolume", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				return c.err
			})
			assert.Equal(t, c.code, status.Code(err))
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.want)
			}
		})
	}
}

func TestWithoutFigures(t *testing.T) {
	for text, want := range map[string]string{
		"5 TiB do not fit: 1.4 GiB is left on 3 disks":    "# do not fit: # is left on # disks",
		"5Ti do not fit: 900MiB, 12.5% (of 7)":            "# do not fit: #, # (of #)",
		`volume "pvc-1" on node-3, disk 0a1b: size 12 34`: `volume "pvc-1" on node-3, disk 0a1b: size # #`,
	} {
		assert.Equal(t, want, withoutFigures(text))
	}
}

// TestARepeatedFailureKeepsItsFigures: so its Event has a growing count, instead of a new Event for each retry.
func TestARepeatedFailureKeepsItsFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDriver{}
		p := provisionerOver(t, d)
		fails := func(text string) string {
			d.err = status.Error(codes.ResourceExhausted, text)
			_, state, err := p.Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(nil), PVName: "pvc-u1", PVC: claim(nil)})
			assert.Equal(t, provision.ProvisioningFinished, state)
			require.Error(t, err)
			return err.Error()
		}
		assert.Equal(t, "no room: 1.4 GiB on node-1", fails("no room: 1.4 GiB on node-1"))
		time.Sleep(time.Minute)
		assert.Equal(t, "no room: 1.4 GiB on node-1", fails("no room: 900 MiB on node-1"), "other figures")
		assert.Equal(t, "no room: 900 MiB on node-2", fails("no room: 900 MiB on node-2"), "another node")
		time.Sleep(figuresAge)
		assert.Equal(t, "no room: 1 MiB on node-2", fails("no room: 1 MiB on node-2"), "figures that are half an hour old")
		d.err, d.answer = nil, &csipb.Volume{VolumeId: "pvc-u1"}
		_, _, err := p.Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(nil), PVName: "pvc-u1", PVC: claim(nil)})
		require.NoError(t, err)
		assert.Empty(t, p.failures.last, "what succeeded is forgotten")
	})
}
