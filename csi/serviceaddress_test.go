package csi

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func TestServiceDomain(t *testing.T) {
	for name, c := range map[string]struct {
		resolver, want string
	}{
		"a pod's":                {"search longhorn-system.svc.cluster.local svc.cluster.local cluster.local corp.example\nnameserver 10.96.0.10\noptions ndots:5\n", "longhorn-system.svc.cluster.local"},
		"another cluster domain": {"nameserver 10.96.0.10\nsearch ns.svc.k8s.example. example\n", "ns.svc.k8s.example"},
		"a node's":               {"search corp.example\nnameserver 192.0.2.1\n", ""},
		"the node's before":      {"search corp.example ns.svc.cluster.local\n", ""},
		"none":                   {"nameserver 192.0.2.1\nsearch\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := serviceDomain(c.resolver)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.want != "", ok)
		})
	}
	file := filepath.Join(t.TempDir(), "resolv.conf")
	_, err := lookUpService(t.Context(), file)("pvc-1")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("search corp.example\n"), 0o600))
	_, err = lookUpService(t.Context(), file)("pvc-1")
	require.ErrorIs(t, err, errNoServiceDomain, "nobody outside the cluster is asked")
}

// The Service of a share was deleted, and another Service has its address. If a node already has the volume, new pods
// there mount the share at its present address.
func TestAShareWhoseServiceHasAnotherAddressIsMountedThere(t *testing.T) {
	h := stagedShare(t, true)
	asked := 0
	at := netip.MustParseAddr("10.0.0.1")
	h.s.core.serviceAddress = func(volume string) (netip.Addr, error) {
		asked++
		assert.Equal(t, "pvc-1", volume)
		return at, nil
	}
	wantCode(t, "stage", h.stage(t), codes.OK)
	assert.Zero(t, asked, "its server answers")

	h.nfs.silent(os.ErrDeadlineExceeded)
	wantCode(t, "stage", h.stage(t), codes.Unavailable)
	assert.Equal(t, map[string]string{"staging": first, "pods/p1/mount": first}, h.mounts(), "the Service is as it was")

	at = netip.MustParseAddr("10.0.0.2")
	wantCode(t, "stage", h.stage(t), codes.OK)
	const there = "10.0.0.2:/pvc-1 nfs4 102"
	assert.Equal(t, map[string]string{"staging": there, "pods/p1/mount": first}, h.mounts())
	h.nfs.calls = nil
	wantCode(t, "publish", h.publish(t, "p2", false), codes.OK)
	wantCode(t, "publish again", h.publish(t, "p2", false), codes.OK)
	assert.Equal(t, map[string]string{"staging": there, "pods/p1/mount": first, "pods/p2/mount": there}, h.mounts())
	assert.Empty(t, h.nfs.calls, "what an earlier call mounted stays")
}

func TestAShareThatNoDNSKnowsIsMountedWhereItWasPublished(t *testing.T) {
	h := newSharedHost(t)
	h.s.core.serviceAddress = func(string) (netip.Addr, error) { return netip.Addr{}, errors.New("no such host") }
	wantCode(t, "stage", h.stage(t), codes.OK)
	assert.Equal(t, map[string]string{"staging": first}, h.mounts())
}
