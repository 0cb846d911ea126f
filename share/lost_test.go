package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/share/proto"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

const (
	deadClient = "Linux NFSv4.2 id-dead/plugin-1"
	liveClient = "Linux NFSv4.2 id-live/plugin-2"
	sayDropped = "does not wait for clients of nodes that are down"
	sayWaits   = "waits for clients of nodes that were down"
	sayAsks    = "checks whether nodes that are down answer"
	// The test network of a role has no route to these addresses.
	deadNode, otherNode = "192.0.2.1:10250", "192.0.2.2:10250"
)

// listAfter is a list of lost clients about the engine of a generation, with one dead node. Its control answers in each
// network: it refuses.
func listAfter(after int64) types.LostClients {
	return types.LostClients{
		After: after, Nodes: []types.LostNode{{ClientID: "id-dead", Addresses: []string{deadNode}}},
		Controls: []types.Control{{Node: "other", Address: "127.0.0.1:9"}},
	}
}

// lostTest has a volume that a former server left, with the records of a lost client and of one that lives. It also has
// the engine's answer. It is nil if the test runs in another process.
type lostTest struct {
	*testing.T
	device, verdict string
	slow            func(o *Options)
}

func newLostTest(t *testing.T) *lostTest {
	if !own(t) {
		return nil
	}
	library := newLibrary(t)
	l := &lostTest{T: t, slow: func(o *Options) { o.Lease, o.Grace, o.WakeLibrary = 60*time.Second, 60*time.Second, library }}
	image := newImage(t, 64<<20)
	former := startRole(t, t.TempDir(), loopDevice(t, image), l.slow)
	former.await(sayServed, 1)
	former.await(sayGraceOver, 1)
	former.is(returningEnv, deadClient)
	former.is(returningEnv, liveClient)
	former.terminate()
	l.device = loopDevice(t, image)
	l.verdict = filepath.Join(t.TempDir(), "verdict")
	t.Setenv(verdictEnv, l.verdict)
	l.answer("yes")
	return l
}

func (l *lostTest) answer(word string) {
	l.Helper()
	var st unix.Stat_t
	require.NoError(l, unix.Stat(l.device, &st))
	require.NoError(l, os.WriteFile(l.verdict+".new", []byte(fmt.Sprint(word, " ", st.Rdev)), 0o600))
	require.NoError(l, os.Rename(l.verdict+".new", l.verdict))
}

// start starts the next server with a list.
func (l *lostTest) start(list types.LostClients) *role {
	return startRole(l.T, l.TempDir(), l.device, func(o *Options) {
		l.slow(o)
		o.LostClients, o.PodNode = list, "here"
	})
}

// inNetwork runs a command in the role's network.
func (r *role) inNetwork(command ...string) {
	r.t.Helper()
	in := fmt.Sprintf("/proc/%d/ns/net", r.cmd.Process.Pid)
	require.NoError(r.t, netns.In(in, func() error { return exec.Command(command[0], command[1:]...).Run() }))
}

// keeps checks that the server waits for both clients.
func (l *lostTest) keeps(r *role) {
	l.Helper()
	r.await(sayServed, 1)
	r.awaitClients(2)
	assert.NotContains(l, r.out.String(), sayDropped)
	r.is(returningEnv, deadClient)
	r.is(returningEnv, liveClient)
	r.await(sayGraceOver, 1)
	r.terminate()
}

// TestTheServerDoesNotWaitForALostClient: the client died with the node of the former server. A server that restarts in
// the same pod waits for it, because it may have come back. So does a process that restarts with the same list.
func TestTheServerDoesNotWaitForALostClient(t *testing.T) {
	l := newLostTest(t)
	if l == nil {
		return
	}
	r := l.start(listAfter(7))
	r.await(sayDropped, 1)
	r.await(sayServed, 1)
	r.awaitClients(1)
	r.is(returningEnv, liveClient)
	r.await(sayGraceOver, 1)

	r.is(returningEnv, deadClient) // its node has booted
	require.NoError(t, syscall.Kill(r.ganesha(), syscall.SIGKILL))
	r.await(sayServed, 2)
	r.is(returningEnv, liveClient)
	r.awaitClients(2)
	assert.Equal(t, 1, strings.Count(r.out.String(), sayGraceOver), "it waits for the other one")
	r.is(returningEnv, deadClient)
	r.await(sayGraceOver, 2)
	r.terminate()

	again := l.start(listAfter(7))
	l.keeps(again)
	assert.Contains(t, again.out.String(), errListUsed.Error())
}

// TestTheServerWaitsForAClientThatMayBeThere: with the real server, each reason separately.
func TestTheServerWaitsForAClientThatMayBeThere(t *testing.T) {
	for name, tc := range map[string]struct {
		list   func(*types.LostClients)
		word   string
		answer string
		says   string
	}{
		"no other node answers":                 {list: func(l *types.LostClients) { l.Controls[0].Address = otherNode }, says: errIsolated.Error()},
		"the other node is the pod's own":       {list: func(l *types.LostClients) { l.Controls[0].Node = "here" }, says: errIsolated.Error()},
		"the node refuses connections":          {list: func(l *types.LostClients) { l.Nodes[0].Addresses = []string{deadNode, "127.0.0.1:9"} }},
		"the list is about an earlier engine":   {list: func(l *types.LostClients) { l.After = 6 }, says: "generation 7 preceded the present generation 8"},
		"the former pod was never heard to ask": {word: "unknown", says: "the time when the former server's engine was last confirmed is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLostTest(t)
			if l == nil {
				return
			}
			if tc.word != "" {
				l.answer(tc.word)
			}
			list := listAfter(7)
			if tc.list != nil {
				tc.list(&list)
			}
			r := l.start(list)
			r.await(sayWaits, 1)
			assert.Contains(t, r.out.String(), tc.says)
			l.keeps(r)
		})
	}
}

// TestANodeThatComesBackDuringTheWait: the record of its client stays. The node gets an address before it is certain
// that the former server reaches no client.
func TestANodeThatComesBackDuringTheWait(t *testing.T) {
	l := newLostTest(t)
	if l == nil {
		return
	}
	r := l.start(listAfter(7))
	r.await(sayAsks, 1)
	r.inNetwork("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
	r.await(sayWaits, 1)
	r.inNetwork("ip", "address", "del", "192.0.2.1/32", "dev", "lo")
	l.keeps(r)
}

// TestAPodWithoutAListUsesUpTheListsOfItsEngine: another pod without a list served with the same engine, and the client
// came back to it.
func TestAPodWithoutAListUsesUpTheListsOfItsEngine(t *testing.T) {
	l := newLostTest(t)
	if l == nil {
		return
	}
	r := l.start(types.LostClients{})
	r.await(sayOpen, 1)
	l.keeps(r)
	late := l.start(listAfter(7))
	l.keeps(late)
	assert.Contains(t, late.out.String(), errListUsed.Error())
}

// dialer determines which addresses answer in each round of connections.
type dialer struct {
	mu     sync.Mutex
	isMute func() bool // the wait for the former server is over
	last   []string    // answer only in the last round; guarded by mu
	early  []string    // answer only in the first round
	rounds map[string]int
}

func (d *dialer) answers(_ context.Context, addresses []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	any := false
	for _, a := range addresses {
		d.rounds[a]++
		switch {
		case d.isMute():
			any = any || slices.Contains(d.last, a)
		case d.rounds[a] == 1:
			any = any || slices.Contains(d.early, a)
		}
	}
	return any
}

func TestWhichNodesAreUnreachable(t *testing.T) {
	const wait = 600 * time.Millisecond // two rounds and a remainder
	list := types.LostClients{
		After: 7,
		Nodes: []types.LostNode{{ClientID: "a", Addresses: []string{"a1", "a2"}}, {ClientID: "b", Addresses: []string{"b1"}}, {ClientID: "no-record", Addresses: []string{"c1"}}},
		Controls: []types.Control{
			{Node: "here", Address: "here"}, {Node: "other", Address: "other"}, {Node: "another", Address: "another"},
		},
	}
	for name, tc := range map[string]struct {
		last, early []string
		node        string
		want        []string
		err         error
	}{
		"nobody but another node answers → all":      {last: []string{"other"}, want: []string{"a", "b"}},
		"one of two answers at once → the other one": {last: []string{"another"}, early: []string{"a2"}, want: []string{"b"}},
		"one answers in the last round alone":        {last: []string{"other", "b1"}, want: []string{"a"}},
		"both answer, each in its round":             {last: []string{"other", "b1"}, early: []string{"a1"}},
		"both answer at once: nothing to wait for":   {early: []string{"a1", "b1"}},
		"no other node answers":                      {err: errIsolated},
		"another node answers, not in the last one":  {early: []string{"other", "another"}, err: errIsolated},
		"the pod's own node answers":                 {last: []string{"here"}, err: errIsolated},
		"the pod's own node is not known":            {last: []string{"here", "other"}, node: "-", err: errIsolated},
	} {
		t.Run(name, func(t *testing.T) {
			began := boottime.Now()
			d := &dialer{isMute: func() bool { return boottime.Now()-began >= wait }, last: tc.last, early: tc.early, rounds: map[string]int{}}
			o := Options{LostClients: list, PodNode: "here", Answers: d.answers, Log: quiet()}
			if tc.node != "" {
				o.PodNode = ""
			}
			first := make(chan confirmation, 1)
			first <- confirmation{Answer{Generation: 9, Before: Predecessor{7, firewall.UnreachableAfter - wait}}, began}
			lastRound, silent, err := (&lostClients{o: o}).waitUntilUnreachable(t.Context(), guard{first: first}, []string{"a", "b"})
			require.ErrorIs(t, err, tc.err)
			assert.Equal(t, tc.want, silent)
			assert.Zero(t, d.rounds["c1"], "a client without a record is nobody's to wait for")
			if len(tc.want) > 0 {
				assert.GreaterOrEqual(t, lastRound-began, wait, "the last round starts when the former server reaches no client")
				assert.Greater(t, d.rounds["b1"], dialAttempts, "it is tried while the server waits, too")
			}
		})
	}
}

func TestFormerUnreachableAt(t *testing.T) {
	for name, tc := range map[string]struct {
		before Predecessor
		want   string
	}{
		"no member has heard a question for long":                                         {Predecessor{7, firewall.UnreachableAfter}, ""},
		"a moment is left, which it waits":                                                {Predecessor{7, firewall.UnreachableAfter - 10*time.Millisecond}, ""},
		"one was heard so long ago that a server that asks nothing may have served since": {Predecessor{7, maxFormerAge + time.Second}, "another server may have served since"},
		"it is not known":                          {Predecessor{}, "not known"},
		"the list is about an earlier engine":      {Predecessor{8, time.Hour}, "engine generation 7, but generation 8 preceded"},
		"the list is about a later engine, absurd": {Predecessor{6, time.Hour}, "engine generation 7, but generation 6 preceded"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lostClients{o: Options{LostClients: listAfter(7), Log: quiet()}}
			first := make(chan confirmation, 1)
			heardAt := boottime.Now()
			first <- confirmation{Answer{Generation: 9, Before: tc.before}, heardAt}
			at, err := l.formerUnreachableAt(t.Context(), guard{first: first})
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, firewall.UnreachableAfter, at-heardAt+tc.before.Age)
		})
	}
	l := &lostClients{o: Options{LostClients: listAfter(9), Log: quiet()}}
	first := make(chan confirmation, 1)
	first <- confirmation{Answer{Generation: 9, Before: Predecessor{9, time.Hour}}, boottime.Now()}
	_, err := l.formerUnreachableAt(t.Context(), guard{first: first})
	require.ErrorContains(t, err, "generation 9", "the engine is its own predecessor")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.formerUnreachableAt(ctx, guard{first: make(chan confirmation)})
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.formerUnreachableAt(t.Context(), guard{})
	require.ErrorContains(t, err, "it asks nothing about the former server")
}

// recoveryOn is a recovery directory with the record of a client.
func recoveryOn(t *testing.T, client string) (v *volume, record string) {
	t.Helper()
	v = &volume{recovery: t.TempDir(), log: quiet()}
	dir := filepath.Join(v.recovery, ganesha.RecordsName, "node0.abcdef")
	record = filepath.Join(dir, fmt.Sprintf("::1-(%d:%s)", 2+2*len(client), fmt.Sprintf("0x%x", client)))
	require.NoError(t, os.MkdirAll(record, 0o700))
	require.NoError(t, os.Symlink("node0.abcdef", filepath.Join(v.recovery, ganesha.RecordsName, "node0")))
	return v, record
}

func TestAnOldRoundDoesNotCount(t *testing.T) {
	v, record := recoveryOn(t, deadClient)
	l := takeLostClients(Options{LostClients: listAfter(7), Log: quiet()}, v)
	assert.Equal(t, []string{"id-dead"}, l.recorded())
	dropped, err := l.remove([]string{"id-dead"}, boottime.Now()-maxRoundAge)
	require.NoError(t, err)
	assert.Empty(t, dropped)
	assert.DirExists(t, record)
	dropped, err = l.remove([]string{"another"}, boottime.Now())
	require.NoError(t, err)
	assert.Empty(t, dropped, "the node answers")
	assert.DirExists(t, record)
	dropped, err = l.remove([]string{"id-dead"}, boottime.Now())
	require.NoError(t, err)
	assert.Equal(t, []string{"id-dead"}, dropped)
	assert.NoDirExists(t, record)
}

// TestAUsedListReportsThatAllMayBeRemoved: a process that may not use its list does not know what the previous process
// removed, and reports that all may be removed.
func TestAUsedListReportsThatAllMayBeRemoved(t *testing.T) {
	v, record := recoveryOn(t, deadClient)
	o := Options{LostClients: listAfter(7), Log: quiet()}
	first := takeLostClients(o, v)
	dropped, err := first.drop(t.Context(), guard{})
	require.NoError(t, err)
	assert.Empty(t, dropped, "nothing was asked, so nothing is known")
	dropped, err = takeLostClients(o, v).drop(t.Context(), guard{})
	require.NoError(t, err)
	assert.Equal(t, []string{"id-dead"}, dropped)
	assert.DirExists(t, record)

	require.NoError(t, os.Remove(filepath.Join(v.recovery, ganesha.LostName)))
	require.NoError(t, os.Mkdir(filepath.Join(v.recovery, ganesha.LostName), 0o700)) // it accepts no number
	dropped, err = takeLostClients(o, v).drop(t.Context(), guard{})
	require.NoError(t, err)
	assert.Equal(t, []string{"id-dead"}, dropped)
	o.ReadOnly = true
	dropped, err = takeLostClients(o, v).drop(t.Context(), guard{})
	require.NoError(t, err)
	assert.Empty(t, dropped)
	dropped, err = takeLostClients(Options{Log: quiet()}, v).drop(t.Context(), guard{})
	require.NoError(t, err)
	assert.Empty(t, dropped)
}

// TestTheEngineIsMarkedBeforeThePortOpens: when the portGuard gets the first yes, all lists about an earlier engine
// are used up.
func TestTheEngineIsMarkedBeforeThePortOpens(t *testing.T) {
	v, _ := recoveryOn(t, deadClient)
	o := Options{Log: quiet()}
	verdict, failed := firewall.No, error(nil)
	o.InForce = func(context.Context, uint64, bool) (Answer, error) {
		return Answer{Verdict: verdict, Generation: 9}, failed
	}
	ask := takeLostClients(o, v).confirmThenServe()
	file := filepath.Join(v.recovery, ganesha.LostName)
	for _, verdict = range []firewall.Verdict{firewall.No, firewall.Unconfirmed, firewall.Unanswered, firewall.NotOffered} {
		_, err := ask(t.Context(), 1, true)
		require.NoError(t, err)
	}
	verdict, failed = firewall.Yes, errors.New("late")
	_, err := ask(t.Context(), 1, true)
	require.Error(t, err)
	assert.NoFileExists(t, file)
	failed = nil
	_, err = ask(t.Context(), 1, true)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "0000000009\n", string(text))
}

func TestDroppedClientsAreReportedToTheLeader(t *testing.T) {
	s := &recoveryService{}
	s.found(types.ShareRecovery{})
	s.decided([]string{"id-dead"}, true)
	s.grown(errors.New("no room"))
	got, err := s.Recovery(t.Context(), &proto.RecoveryRequest{})
	require.NoError(t, err)
	said := recoveryOf(got)
	assert.Equal(t, types.ShareRecovery{NotGrown: "no room", Dropped: []string{"id-dead"}, PortGuarded: true}, said)
	s.found(types.ShareRecovery{Incident: "x", Reason: types.ReasonRecoveryDataMissing, FoundAt: time.Unix(5, 0)})
	got, err = s.Recovery(t.Context(), &proto.RecoveryRequest{})
	require.NoError(t, err)
	said = recoveryOf(got)
	assert.Equal(t, "x", said.Incident)
	assert.Equal(t, []string{"id-dead"}, said.Dropped)
	assert.True(t, said.PortGuarded)
	assert.Equal(t, types.ShareRecovery{}, recoveryOf(&proto.RecoveryReply{}), "an earlier release says nothing")
}

// TestOnlyAConfirmedAnswerNamesThePredecessor: an answer that is neither yes nor "cannot tell" says nothing about the
// previous engine.
func TestOnlyAConfirmedAnswerNamesThePredecessor(t *testing.T) {
	for v, want := range map[firewall.Verdict]int{
		firewall.Yes: 1, firewall.CannotTell: 1, firewall.No: 0, firewall.Unconfirmed: 0, firewall.Unanswered: 0, firewall.NotOffered: 0,
	} {
		first := make(chan confirmation, 1)
		ask := recordFirst(first, 5, func(context.Context, uint64, bool) (Answer, error) { return Answer{Verdict: v, Generation: 9}, nil })
		got, err := ask(t.Context(), true)
		require.NoError(t, err)
		assert.Equal(t, v, got)
		assert.Len(t, first, want, "%s", v)
	}
	first := make(chan confirmation, 1)
	ask := recordFirst(first, 5, func(context.Context, uint64, bool) (Answer, error) {
		return Answer{Verdict: firewall.Yes}, errors.New("late")
	})
	_, err := ask(t.Context(), true)
	require.Error(t, err)
	assert.Empty(t, first)
}
