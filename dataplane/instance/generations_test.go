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

// asks sends the question of a share manager on the node.
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

// serveDevice makes the engine of the node report that it serves a device; these tests have no real device.
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

	// Another engine is started elsewhere, as after the death of the node. Its replicas are fenced and stopped, and
	// started again.
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

// A replica does not know the age after its process was restarted. It forgets the age when it hears a question without
// limit.
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

// The engine may take over the device that the share has mounted.
func TestAnEngineThatStartsIsNeitherInForceNorNot(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	_, err := n.EngineStart(context.Background(), cluster{n}.engineSpec(1, nil))
	require.NoError(t, err)
	assert.Equal(t, proto.InForceReply_UNCONFIRMED, n.asks(shareDevice, true).GetVerdict())
}

// An instance manager of an earlier release has no such socket. An instance manager that cannot create it serves all
// the same.
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

// A frontend reports the number of its device. A file system on the device shows the same number.
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
