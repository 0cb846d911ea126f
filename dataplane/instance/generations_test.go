package instance

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// shareDevice is the number of the device that a share manager has mounted in these tests.
const shareDevice = 0x1234

// asks is what a share manager on the node would ask.
func (n *node) asks(device uint64, limited bool) *proto.InForceReply {
	n.t.Helper()
	g, err := client.NewGenerations(n.options().GenerationsSocket)
	require.NoError(n.t, err)
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := g.InForce(ctx, &proto.InForceRequest{Volume: volume, Device: device, Limited: limited})
	require.NoError(n.t, err)
	return reply
}

// serveDevice has the engine of the node say that it serves a device, which these tests do without.
func (n *node) serveDevice() {
	n.Instance.engines.ofVolume(volume).device = func() uint64 { return shareDevice }
}

func TestAShareManagerAsksWhetherItsEngineIsInForce(t *testing.T) {
	c := newCluster(t)
	assert.Equal(t, proto.InForceReply_NOT_IN_FORCE, c[0].asks(shareDevice, true).GetVerdict(), "no engine is here")
	epoch := c.startEngine(c[0], c.engineSpec(1, nil))
	assert.Equal(t, proto.InForceReply_NOT_IN_FORCE, c[0].asks(shareDevice, true).GetVerdict(), "it has no device")
	assert.Equal(t, proto.InForceReply_NOT_IN_FORCE, c[0].asks(0, true).GetVerdict(), "and 0 is none")
	c[0].serveDevice()

	reply := c[0].asks(shareDevice, true)
	assert.Equal(t, proto.InForceReply_IN_FORCE, reply.GetVerdict())
	assert.Equal(t, int64(1), reply.GetGeneration())
	assert.Nil(t, reply.PredecessorAgeMillis, "no engine was before")
	reply = c[0].asks(shareDevice+1, true)
	assert.Equal(t, proto.InForceReply_NOT_IN_FORCE, reply.GetVerdict(), "the device is that of an engine before")

	// Another engine is made elsewhere, as after the death of the node: its replicas are fenced and stopped, and started again.
	for _, n := range c[1:] {
		require.NoError(t, n.stopReplica(2))
	}
	require.Eventually(t, func() bool { return c[0].asks(shareDevice, true).GetVerdict() == proto.InForceReply_NOT_IN_FORCE }, patience, time.Millisecond)
	for _, n := range c[1:] {
		n.startReplica()
	}
	spec := c.engineSpec(3, epoch)
	spec.Members[0].Address = "" // its node is gone
	c.startEngine(c[1], spec)
	c[1].serveDevice()
	reply = c[1].asks(shareDevice, true)
	assert.Equal(t, proto.InForceReply_IN_FORCE, reply.GetVerdict())
	require.NotNil(t, reply.PredecessorAgeMillis)
	assert.Equal(t, int64(1), reply.GetPredecessorGeneration())
	assert.Less(t, reply.GetPredecessorAgeMillis(), patience.Milliseconds())
}

// A replica's process that was restarted knows no age, and one that heard a question without limit forgets it.
func TestNoAgeIsKnownWhereNoMemberRemembers(t *testing.T) {
	for name, forget := range map[string]func(t *testing.T, c cluster){
		"the processes of the members were restarted": func(t *testing.T, c cluster) {
			for _, n := range c[1:] {
				n.stop()
				n.start()
			}
		},
		"the last question had no limit": func(t *testing.T, c cluster) { c[0].asks(shareDevice, false) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			epoch := c.startEngine(c[0], c.engineSpec(1, nil))
			c[0].serveDevice()
			require.Equal(t, proto.InForceReply_IN_FORCE, c[0].asks(shareDevice, true).GetVerdict())
			forget(t, c)
			for _, n := range c[1:] {
				n.startReplica()
			}
			spec := c.engineSpec(2, epoch)
			spec.Members[0].Address = ""
			c.startEngine(c[1], spec)
			c[1].serveDevice()
			reply := c[1].asks(shareDevice, true)
			assert.Equal(t, proto.InForceReply_IN_FORCE, reply.GetVerdict())
			assert.Nil(t, reply.PredecessorAgeMillis)
		})
	}
}

func TestAKeptDeviceIsNeitherInForceNorNot(t *testing.T) {
	n, k := newNode(t, 1), keepsOne()
	n.stop()
	k.held[0].Dev = shareDevice
	n.keeper = k
	n.start()
	assert.Equal(t, proto.InForceReply_UNCONFIRMED, n.asks(shareDevice, true).GetVerdict())
	assert.Equal(t, proto.InForceReply_NOT_IN_FORCE, n.asks(shareDevice+1, true).GetVerdict())
}

// It may take over the device that the share has mounted.
func TestAnEngineThatStartsIsNeitherInForceNorNot(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	_, err := n.EngineStart(context.Background(), cluster{n}.engineSpec(1, nil))
	require.NoError(t, err)
	assert.Equal(t, proto.InForceReply_UNCONFIRMED, n.asks(shareDevice, true).GetVerdict())
}

// An instance manager of an earlier release has no such socket; one that cannot make it serves all the same.
func TestAnInstanceManagerWithoutTheSocket(t *testing.T) {
	root := newRoot(t)
	require.NoError(t, os.MkdirAll(root+"/run", 0o755))
	require.NoError(t, os.WriteFile(root+"/run/share", nil, 0o600))
	n := nodeAt(t, 1, root)
	n.createReplica()
	g, err := client.NewGenerations(n.options().GenerationsSocket)
	require.NoError(t, err)
	defer g.Close()
	_, err = g.InForce(t.Context(), &proto.InForceRequest{Volume: volume})
	require.Error(t, err)
	assert.False(t, errors.Is(err, client.ErrNotOffered), "a file in its place is no proof")

	g, err = client.NewGenerations(root + "/none.sock")
	require.NoError(t, err)
	defer g.Close()
	_, err = g.InForce(t.Context(), &proto.InForceRequest{Volume: volume})
	require.ErrorIs(t, err, client.ErrNotOffered)
	g, err = client.NewGenerations(n.options().GRPCSocket)
	require.NoError(t, err)
	defer g.Close()
	_, err = g.InForce(t.Context(), &proto.InForceRequest{Volume: volume})
	require.ErrorIs(t, err, client.ErrNotOffered)
}

// The number that a frontend tells is that of its device, with which a file system on it is known.
func TestTheDeviceOfAnEngineIsAskedByItsNumber(t *testing.T) {
	needDevices(t)
	n := newNode(t, 1)
	_, path := n.withDevice()
	assert.Equal(t, proto.InForceReply_IN_FORCE, n.asks(numberOf(t, path), true).GetVerdict())
	n.stopEngine()
	assert.Equal(t, proto.InForceReply_NOT_IN_FORCE, n.asks(0, true).GetVerdict())
}

func numberOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return st.Rdev
}
