package csi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	testVolume = "pvc-1"
	testDriver = "driver.longhorn.io"
)

func coreOver(f *fakeService) *controller {
	return &controller{volumes: f, driver: testDriver, poll: time.Second, wait: 90 * time.Second, log: quiet()}
}

func ticketOn(node string, satisfied bool) Ticket {
	return Ticket{ID: ticketID(testVolume, testDriver, node), Type: "csi-attacher", NodeID: node, Satisfied: satisfied}
}

// volumeIn changes the test volume to a state with tickets.
func volumeIn(state string, node string, tickets ...Ticket) func(*Volume) {
	return func(v *Volume) {
		v.SizeBytes, v.State, v.NodeID, v.Ready = 64<<20, state, node, true
		for _, t := range tickets {
			v.Tickets[t.ID] = t
		}
	}
}

// shareOn is a shared volume in a state, on a node.
func shareOn(state string, node string, tickets ...Ticket) func(*Volume) {
	return func(v *Volume) {
		volumeIn(state, node, tickets...)(v)
		v.AccessMode = accessModeRWX
	}
}

func TestTicketIDIsLonghorns(t *testing.T) {
	// printf 'voldriver.longhorn.ionode-1' | sha256sum
	const want = "csi-72d2e2069991f6685dd23d759b8218dc2646bb63b5c55ae962994d755bcb846c"
	assert.Equal(t, want, ticketID("vol", "driver.longhorn.io", "node-1"))
}

func TestCreate(t *testing.T) {
	request := VolumeRequest{Name: testVolume, SizeBytes: 64 << 20}
	cases := []struct {
		name  string
		given func(*fakeService)
		code  codes.Code
		calls []string
	}{
		{name: "no volume → it is made", given: func(f *fakeService) { f.instant = true }, code: codes.OK, calls: []string{"create pvc-1"}},
		{name: "the same volume → nothing is made", given: func(f *fakeService) { f.edit(testVolume, volumeIn("detached", "")) }, code: codes.OK},
		{
			name: "another size → already exists",
			given: func(f *fakeService) {
				f.edit(testVolume, volumeIn("detached", ""))
				f.edit(testVolume, func(v *Volume) { v.SizeBytes = 2 << 20 })
			},
			code: codes.AlreadyExists,
		},
		{name: "one being deleted → aborted", given: func(f *fakeService) { f.edit(testVolume, volumeIn("deleting", "")) }, code: codes.Aborted},
		{name: "no room → resource exhausted", given: func(f *fakeService) { f.fail["create pvc-1"] = ErrInsufficientStorage }, code: codes.ResourceExhausted, calls: []string{"create pvc-1"}},
		{name: "a rule broken → invalid argument", given: func(f *fakeService) { f.fail["create pvc-1"] = ErrInvalid }, code: codes.InvalidArgument, calls: []string{"create pvc-1"}},
		{name: "no answer → unavailable", given: func(f *fakeService) { f.fail["create pvc-1"] = errors.New("connection refused") }, code: codes.Unavailable, calls: []string{"create pvc-1"}},
		{
			name: "made by another in between → the same volume is good",
			given: func(f *fakeService) {
				f.fail["create pvc-1"] = ErrConflict
				looks := 0
				f.looked = func(f *fakeService, _ string) {
					if looks++; looks == 2 {
						f.edit(testVolume, volumeIn("detached", ""))
					}
				}
			},
			code: codes.OK, calls: []string{"create pvc-1"},
		},
		{name: "never ready → deadline exceeded", given: func(*fakeService) {}, code: codes.DeadlineExceeded, calls: []string{"create pvc-1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService()
				c.given(f)
				err := toStatus(coreOver(f).create(t.Context(), request))
				assert.Equal(t, c.code, status.Code(err), err)
				assert.Equal(t, c.calls, f.made())
			})
		})
	}
}

func TestDelete(t *testing.T) {
	cases := []struct {
		name  string
		given func(*fakeService)
		code  codes.Code
		calls []string
	}{
		{name: "no volume → done", given: func(*fakeService) {}, code: codes.OK},
		{
			name: "a volume that goes after five seconds → waited for",
			given: func(f *fakeService) {
				f.edit(testVolume, volumeIn("detached", ""))
				start := time.Now()
				f.looked = func(f *fakeService, name string) {
					if time.Since(start) >= 5*time.Second {
						f.remove(name)
					}
				}
			},
			code: codes.OK, calls: []string{"delete pvc-1"},
		},
		{name: "a volume that stays → deadline exceeded", given: func(f *fakeService) { f.edit(testVolume, volumeIn("detached", "")) }, code: codes.DeadlineExceeded, calls: []string{"delete pvc-1"}},
		{name: "already deleting → only waited for", given: func(f *fakeService) { f.edit(testVolume, volumeIn("deleting", "")) }, code: codes.DeadlineExceeded},
		{
			name:  "a share that leaves its node after five seconds → deleted then, not before",
			given: leaves(shareOn("attached", "n1"), shareOn("detaching", "n1"), shareOn("detached", "")),
			code:  codes.OK, calls: []string{"delete pvc-1"},
		},
		{name: "a share that stays on its node → aborted, not deleted", given: func(f *fakeService) { f.edit(testVolume, shareOn("attached", "n1")) }, code: codes.Aborted},
		{name: "a share that comes to its node → aborted, not deleted", given: func(f *fakeService) { f.edit(testVolume, shareOn("attaching", "n1")) }, code: codes.Aborted},
		{name: "a share that does not leave its node → aborted, not deleted", given: func(f *fakeService) { f.edit(testVolume, shareOn("detaching", "n1")) }, code: codes.Aborted},
		{
			name: "a share that is published while it is waited for → refused, not deleted",
			given: func(f *fakeService) {
				f.edit(testVolume, shareOn("attached", "n1"))
				after(5*time.Second, shareOn("attached", "n1", ticketOn("n2", true)))(f)
			},
			code: codes.FailedPrecondition,
		},
		{
			name: "a share whose node is away for good → deletion is asked for",
			given: func(f *fakeService) {
				f.edit(testVolume, func(v *Volume) { shareOn("detaching", "n1")(v); v.Faulted = true })
			},
			code: codes.DeadlineExceeded, calls: []string{"delete pvc-1"},
		},
		{
			name: "a share that is gone while it is waited for → done",
			given: func(f *fakeService) {
				f.edit(testVolume, shareOn("detaching", "n1"))
				start := time.Now()
				f.looked = func(f *fakeService, name string) {
					if time.Since(start) >= 5*time.Second {
						f.remove(name)
					}
				}
			},
			code: codes.OK,
		},
		{
			name: "attached for a snapshot for five seconds → deleted then, not before",
			given: leaves(
				volumeIn("attached", "n1", Ticket{ID: "snapshot-controller-1", Type: snapshotType, NodeID: "n1", Satisfied: true}),
				func(v *Volume) { volumeIn("detaching", "n1")(v); clear(v.Tickets) },
				volumeIn("detached", ""),
			),
			code: codes.OK, calls: []string{"delete pvc-1"},
		},
		{name: "it does not leave its node → aborted, not deleted", given: func(f *fakeService) { f.edit(testVolume, volumeIn("detaching", "n1")) }, code: codes.Aborted},
		{
			name: "attached by hand → deletion is asked for, and the manager refuses it",
			given: func(f *fakeService) {
				f.edit(testVolume, volumeIn("attached", "n1", Ticket{ID: "ui", Type: "longhorn-api", NodeID: "n1"}))
			},
			code: codes.DeadlineExceeded, calls: []string{"delete pvc-1"},
		},
		{name: "published → refused", given: func(f *fakeService) { f.edit(testVolume, volumeIn("attached", "n1", ticketOn("n1", true))) }, code: codes.FailedPrecondition},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService()
				c.given(f)
				err := toStatus(coreOver(f).delete(t.Context(), testVolume))
				assert.Equal(t, c.code, status.Code(err), err)
				assert.Equal(t, c.calls, f.made())
			})
		})
	}
}

// leaves has a volume that is attached at first, starts to leave its node after two seconds, and has left it after five.
// If its deletion was requested, it is gone after eight. A deletion that is requested earlier fails the test.
func leaves(attached, detaching, detached func(*Volume)) func(*fakeService) {
	return func(f *fakeService) {
		f.edit(testVolume, attached)
		start := time.Now()
		f.looked = func(f *fakeService, name string) {
			isRequested := slices.Contains(f.made(), "delete pvc-1")
			switch since := time.Since(start); {
			case since < 5*time.Second && isRequested:
				panic("deleted while the volume was on its node")
			case since >= 8*time.Second && isRequested:
				f.remove(name)
			case since >= 5*time.Second:
				f.edit(name, detached)
			case since >= 2*time.Second:
				f.edit(name, detaching)
			}
		}
	}
}

// after changes the volume once some time has passed.
func after(d time.Duration, change func(*Volume)) func(*fakeService) {
	return func(f *fakeService) {
		start := time.Now()
		done := false
		f.looked = func(f *fakeService, name string) {
			if !done && time.Since(start) >= d {
				done = true
				f.edit(name, change)
			}
		}
	}
}

func TestPublish(t *testing.T) {
	mine := ticketOn("n1", true)
	cases := []struct {
		name    string
		given   []func(*fakeService)
		volume  func(*Volume)
		code    codes.Code
		calls   []string
		message string
		// left: this driver's ticket for n1 still exists afterwards.
		left bool
	}{
		{name: "no such node → not found", volume: volumeIn("detached", ""), given: []func(*fakeService){func(f *fakeService) { delete(f.nodes, "n1") }}, code: codes.NotFound, calls: []string{"detach pvc-1 "}},
		{name: "no such volume → not found", code: codes.NotFound, calls: []string{"detach pvc-1 "}},
		{name: "attached for us already → nothing is asked", volume: volumeIn("attached", "n1", mine), code: codes.OK, left: true},
		{
			name: "detached → a ticket, and satisfied after ten seconds", volume: volumeIn("detached", ""),
			given: []func(*fakeService){after(10*time.Second, volumeIn("attached", "n1", mine))},
			code:  codes.OK, calls: []string{"attach pvc-1 n1"}, left: true,
		},
		{
			name:   "a satisfied ticket for another node is not ours",
			volume: volumeIn("attached", "n2", ticketOn("n2", true)),
			code:   codes.FailedPrecondition, calls: []string{"attach pvc-1 n1", "detach pvc-1 n1"}, message: "attached to node n2",
		},
		{
			name: "attached elsewhere but let go in time → attached", volume: volumeIn("attached", "n2", ticketOn("n2", true)),
			given: []func(*fakeService){after(30*time.Second, volumeIn("attached", "n1", mine))},
			code:  codes.OK, calls: []string{"attach pvc-1 n1"}, left: true,
		},
		{
			name: "not ready → aborted, nothing is asked",
			volume: func(v *Volume) {
				volumeIn("detaching", "")(v)
				v.Ready, v.NotReadyMessage = false, "state is detaching"
			},
			code: codes.Aborted, message: "state is detaching",
		},
		{
			name: "a person took its ticket while it was in use here, so it detaches without end → a ticket, and it stays",
			volume: func(v *Volume) {
				volumeIn("detaching", "n1")(v)
				v.Ready, v.NotReadyMessage = false, "volume is detaching, not detached"
			},
			given: []func(*fakeService){after(time.Second, func(v *Volume) { volumeIn("attached", "n1", mine)(v); v.Ready = true })},
			code:  codes.OK, calls: []string{"attach pvc-1 n1"}, left: true,
		},
		{
			name:   "strict-local, its data on another node → failed precondition at once, naming that node",
			volume: func(v *Volume) { volumeIn("detached", "")(v); v.StrictLocalNodes = []string{"n2"} },
			code:   codes.FailedPrecondition, calls: []string{"detach pvc-1 "}, message: `its data is on node "n2"`,
		},
		{
			name: "the same, asked for before → the ticket is taken back",
			volume: func(v *Volume) {
				volumeIn("detached", "", ticketOn("n1", false))(v)
				v.StrictLocalNodes = []string{"n2"}
			},
			code: codes.FailedPrecondition, calls: []string{"detach pvc-1 n1"}, message: `its data is on node "n2"`,
		},
		{
			name:   "strict-local, attached there by an earlier release → published",
			volume: func(v *Volume) { volumeIn("attached", "n1", mine)(v); v.StrictLocalNodes = []string{"n2"} },
			code:   codes.OK, left: true,
		},
		{
			name: "strict-local, its data there → a ticket", volume: func(v *Volume) { volumeIn("detached", "")(v); v.StrictLocalNodes = []string{"n1"} },
			given: []func(*fakeService){after(10*time.Second, volumeIn("attached", "n1", mine))},
			code:  codes.OK, calls: []string{"attach pvc-1 n1"}, left: true,
		},
		{
			name:   "faulted → aborted, saying so",
			volume: func(v *Volume) { volumeIn("detached", "")(v); v.Faulted = true },
			code:   codes.Aborted, message: "volume is faulted",
		},
		{
			name: "never satisfied → deadline exceeded with the ticket's reason, and the ticket stays", volume: volumeIn("detached", ""),
			given: []func(*fakeService){after(time.Second, volumeIn("attaching", "n1", Ticket{ID: mine.ID, NodeID: "n1", Message: "replica r1 does not start"}))},
			code:  codes.DeadlineExceeded, calls: []string{"attach pvc-1 n1"}, message: "replica r1 does not start", left: true,
		},
		{
			name: "a refused ticket → the code of the refusal, and no ticket", volume: volumeIn("detached", ""),
			given: []func(*fakeService){func(f *fakeService) { f.fail["attach pvc-1 n1"] = ErrInvalid }},
			code:  codes.InvalidArgument, calls: []string{"attach pvc-1 n1", "detach pvc-1 "},
		},
		{
			name: "a final answer whose ticket cannot be taken back → not final", volume: volumeIn("attached", "n2", ticketOn("n2", true)),
			given: []func(*fakeService){func(f *fakeService) { f.fail["detach pvc-1 n1"] = errors.New("away") }},
			code:  codes.Aborted, calls: []string{"attach pvc-1 n1", "detach pvc-1 n1"}, message: "away", left: true,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService("n1", "n2")
				if c.volume != nil {
					f.edit(testVolume, c.volume)
				}
				for _, given := range c.given {
					given(f)
				}
				_, err := coreOver(f).publish(t.Context(), testVolume, "n1", capability{accessMode: accessModeRWO})
				assert.Equal(t, c.code, status.Code(err), err)
				if c.message != "" {
					checkError(t, err, c.message)
				}
				assert.Equal(t, c.calls, f.made())
				_, left := f.volumes[testVolume].Tickets[mine.ID]
				assert.Equal(t, c.left, left, "ticket left")
			})
		})
	}
}

func TestPublishAnswersBeforeTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeService("n1", "n2")
		f.edit(testVolume, volumeIn("attached", "n2", ticketOn("n2", true)))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := coreOver(f).publish(ctx, testVolume, "n1", capability{accessMode: accessModeRWO})
		assert.Equal(t, codes.FailedPrecondition, status.Code(err), err)
		assert.NoError(t, ctx.Err())
	})
}

func TestUnpublish(t *testing.T) {
	person := Ticket{ID: "", Type: "longhorn-api", NodeID: "n1", Satisfied: true}
	cases := []struct {
		name   string
		node   string
		volume func(*Volume)
		given  func(*fakeService)
		code   codes.Code
		calls  []string
	}{
		{name: "no volume → done", node: "n1", code: codes.OK},
		{
			name: "the volume leaves the node after five seconds → waited for", node: "n1",
			volume: volumeIn("attached", "n1", ticketOn("n1", true)),
			given:  after(5*time.Second, volumeIn("detached", "")),
			code:   codes.OK, calls: []string{"detach pvc-1 n1"},
		},
		{
			name: "the volume does not leave the node → deadline exceeded", node: "n1",
			volume: volumeIn("attached", "n1", ticketOn("n1", true)),
			code:   codes.DeadlineExceeded, calls: []string{"detach pvc-1 n1"},
		},
		{
			name: "detaching from nowhere known → not done", node: "n1",
			volume: volumeIn("detaching", ""),
			code:   codes.DeadlineExceeded, calls: []string{"detach pvc-1 "},
		},
		{
			name: "a person wants it there → only our ticket goes", node: "n1",
			volume: volumeIn("attached", "n1", ticketOn("n1", true), person),
			code:   codes.OK, calls: []string{"detach pvc-1 n1"},
		},
		{
			name: "attached to another node by now → done", node: "n1",
			volume: volumeIn("attached", "n2", ticketOn("n2", true)),
			code:   codes.OK, calls: []string{"detach pvc-1 "},
		},
		{
			name: "no node named → our ticket goes whatever node it is for", node: "",
			volume: volumeIn("attached", "n2", ticketOn("n2", true)),
			given:  after(time.Second, volumeIn("detached", "")),
			code:   codes.OK, calls: []string{"detach pvc-1 n2"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService("n1", "n2")
				if c.volume != nil {
					f.edit(testVolume, c.volume)
				}
				if c.given != nil {
					c.given(f)
				}
				err := toStatus(coreOver(f).unpublish(t.Context(), testVolume, c.node))
				assert.Equal(t, c.code, status.Code(err), err)
				assert.Equal(t, c.calls, f.made())
			})
		})
	}
}

func TestConcurrentCallsForOneVolumeAreAborted(t *testing.T) {
	f := newFakeService("n1")
	f.edit(testVolume, volumeIn("detached", ""))
	s := &controllerServer{core: coreOver(f)}
	unlock, ok := s.locks.tryLock(testVolume)
	require.True(t, ok, "the lock of an idle volume is held")
	_, err := s.DeleteVolume(t.Context(), &csipb.DeleteVolumeRequest{VolumeId: testVolume})
	assert.Equal(t, codes.Aborted, status.Code(err), err)
	unlock()
	f.instant = true
	_, err = s.DeleteVolume(t.Context(), &csipb.DeleteVolumeRequest{VolumeId: testVolume})
	assert.NoError(t, err, "after the first call")
}

func TestVolumeContextKeepsParametersButNotTheProvisioners(t *testing.T) {
	got := volumeContext(map[string]string{"numberOfReplicas": "3", "csi.storage.k8s.io/pvc/name": "data"}, VolumeRequest{AccessMode: "rwop"})
	want := map[string]string{"numberOfReplicas": "3", "share": "false", "exclusive": "true"}
	assert.Equal(t, want, got)
	got = volumeContext(map[string]string{"nfsOptions": "vers=4.1", "shareManagerNodeSelector": "a:b"}, VolumeRequest{AccessMode: "rwx"})
	assert.Equal(t, map[string]string{"nfsOptions": "vers=4.1", "shareManagerNodeSelector": "a:b", "share": "true", "exclusive": "false"}, got)
}

// A volume comes to a node when it has left the other node. So the call that detaches it there must not wait for the
// call that attaches it here.
func TestCallsForOneVolumeOnTwoNodesDoNotWaitForEachOther(t *testing.T) {
	f := newFakeService("n1", "n2")
	f.edit(testVolume, volumeIn("detached", ""))
	s := &controllerServer{core: coreOver(f)}
	unlock, ok := s.locks.tryLock(onNode(testVolume, "n2")) // as in a publication that waits
	require.True(t, ok, "not locked")
	defer unlock()
	for node, want := range map[string]codes.Code{"n1": codes.OK, "n2": codes.Aborted} {
		_, err := s.ControllerUnpublishVolume(t.Context(), &csipb.ControllerUnpublishVolumeRequest{VolumeId: testVolume, NodeId: node})
		assert.Equal(t, want, status.Code(err), "%s: %v", node, err)
	}
}
