package share

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestAskingForTheRecoveryData(t *testing.T) {
	ask := func(h *healthService) (types.ShareRecovery, error) { return AskRecovery(t.Context(), h.address) }
	begin := func() *healthService {
		h, err := serveHealth(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(h.close)
		return h
	}
	h := begin()
	_, err := ask(h)
	assert.Equal(t, codes.Unavailable, status.Code(err), "before the volume is mounted: %v", err)
	h.recovery.found(types.ShareRecovery{})
	got, err := ask(h)
	require.NoError(t, err)
	assert.Equal(t, types.ShareRecovery{}, got)

	lost := types.ShareRecovery{Incident: "one", Reason: types.ReasonRecoveryDataMissing, Message: "it is gone", FoundAt: time.Unix(1893553445, 0)}
	h = begin()
	h.recovery.found(lost)
	for range 2 {
		got, err = ask(h)
		require.NoError(t, err)
		assert.Equal(t, lost, got, "the same each time")
	}
}

// The answer is written into a status.
func TestALossCountsWithInvalidDetails(t *testing.T) {
	h, err := serveHealth(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(h.close)
	h.recovery.found(types.ShareRecovery{
		Incident: strings.Repeat("i", 1000), Reason: "of a later release", Message: strings.Repeat("m", 511) + "ö" + strings.Repeat("m", 1<<20), FoundAt: time.Unix(7, 0),
	})
	got, err := AskRecovery(t.Context(), h.address)
	require.NoError(t, err)
	assert.Equal(t, types.ShareRecovery{
		Incident: strings.Repeat("i", 64), Reason: types.ReasonRecoveryDataMissing, Message: strings.Repeat("m", 511), FoundAt: time.Unix(7, 0),
	}, got)
}

func TestAShareManagerThatCannotAnswerHasLostNothing(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, done := grpc.NewServer(), make(chan struct{})
	go func() { defer close(done); _ = s.Serve(listener) }()
	defer func() { s.Stop(); <-done }()
	got, err := AskRecovery(t.Context(), listener.Addr().String())
	require.NoError(t, err)
	assert.Equal(t, types.ShareRecovery{}, got)
}

func TestTheAnswerOfAShareFollowsWhatItFindsLater(t *testing.T) {
	var s recoveryService
	_, err := s.Recovery(t.Context(), nil)
	require.Error(t, err, "nothing is known yet")
	s.grown(os.ErrPermission)
	s.found(types.ShareRecovery{})
	ask := func() types.ShareRecovery {
		t.Helper()
		r, err := s.Recovery(t.Context(), nil)
		require.NoError(t, err)
		return recoveryOf(r)
	}
	assert.Equal(t, types.ShareRecovery{NotGrown: os.ErrPermission.Error()}, ask())
	s.limited(os.ErrInvalid)
	assert.Equal(t, types.ShareRecovery{NotGrown: os.ErrPermission.Error(), NotLimited: os.ErrInvalid.Error()}, ask())
	s.limited(nil)
	s.grown(nil)
	assert.Equal(t, types.ShareRecovery{}, ask())
	s.found(types.ShareRecovery{Incident: "one", Reason: types.ReasonRecoveryDataUnusable, Message: "full", FoundAt: time.Unix(7, 0)})
	s.grown(os.ErrPermission)
	assert.Equal(t, types.ShareRecovery{Incident: "one", Reason: types.ReasonRecoveryDataUnusable, Message: "full", FoundAt: time.Unix(7, 0), NotGrown: os.ErrPermission.Error()}, ask())
}
