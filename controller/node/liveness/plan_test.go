package liveness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVerdict(t *testing.T) {
	// silent is one node of three that nothing reaches, with a witness that agrees.
	silent := func(change func(*finding)) finding {
		f := finding{asked: true, nodes: 3, apiRead: true, said: testimony{agrees: "b"}}
		change(&f)
		return f
	}
	noWitness := func(change func(*finding)) finding {
		return silent(func(f *finding) { f.said = testimony{}; change(f) })
	}
	for name, c := range map[string]struct {
		found finding
		want  outcome
	}{
		"a witness agrees → down":                             {silent(func(*finding) {}), outcome{down: true, witness: "b"}},
		"it answers the leader → lives":                       {silent(func(f *finding) { f.answers = true }), outcome{lives: true}},
		"a witness reaches it, another does not → lives":      {silent(func(f *finding) { f.said.reached = true }), outcome{lives: true}},
		"a witness reaches it, and its lease is late → lives": {silent(func(f *finding) { f.said.reached, f.lease = true, leaseLate }), outcome{lives: true}},
		"there is no address → undecided":                     {silent(func(f *finding) { f.asked = false }), outcome{why: "the node has no address at which the leader can ask it"}},
		"an older node's lease was renewed → undecided":       {silent(func(f *finding) { f.lease = leaseRenewed }), outcome{why: "the node has renewed its lease"}},
		"an older node's lease is late → down":                {silent(func(f *finding) { f.lease = leaseLate }), outcome{down: true, witness: "b"}},
		"an older node's lease cannot be read → undecided":    {silent(func(f *finding) { f.lease = leaseUnread }), outcome{why: "the node's lease cannot be read"}},
		"the API server does not answer → undecided":          {silent(func(f *finding) { f.apiRead = false }), outcome{why: "the API server does not answer"}},
		"no other node → undecided":                           {silent(func(f *finding) { f.nodes = 1 }), outcome{why: "the cluster has no other node"}},
		"no witness answers → undecided":                      {noWitness(func(*finding) {}), outcome{why: "no daemon of another node has answered"}},
		"two nodes → down, without a witness":                 {noWitness(func(f *finding) { f.nodes = 2 }), outcome{down: true}},
		"two nodes, no API server → undecided": {
			noWitness(func(f *finding) { f.nodes, f.apiRead = 2, false }),
			outcome{why: "the API server does not answer"},
		},
		"all others are of an earlier release → down, without a witness": {noWitness(func(f *finding) { f.said.earlier = true }), outcome{down: true}},
		"all others are of an earlier release, no API server → undecided": {
			noWitness(func(f *finding) { f.said.earlier, f.apiRead = true, false }),
			outcome{why: "the API server does not answer"},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, verdict(c.found)) })
	}
}

// asked drives a count: each step is a tick, 0.5 s after the previous one unless the test says otherwise.
type asked struct {
	*count
	now time.Time
}

func newAsked() *asked { return &asked{newCount(standard), start} }

var (
	yes   = round{heard: true, answered: true}
	no    = round{heard: true}
	never = round{}
)

func (a *asked) after(d time.Duration, nodes map[string][]round) []string {
	a.now = a.now.Add(d)
	return a.tick(a.now, nodes)
}

func (a *asked) times(n int, nodes map[string][]round) (suspects []string) {
	for range n {
		suspects = a.after(standard.interval, nodes)
	}
	return suspects
}

func TestThreeUnansweredQuestionsMakeANodeSilent(t *testing.T) {
	for name, c := range map[string]struct {
		before, then []round
		ticks        int
		silent       bool
	}{
		"two → not yet":                                       {[]round{yes}, []round{no}, 2, false},
		"three → silent":                                      {[]round{yes}, []round{no}, 3, true},
		"one of its shares answers → not":                     {[]round{yes, yes}, []round{no, yes}, 9, false},
		"none of its shares answers → silent":                 {[]round{yes, yes}, []round{no, no}, 3, true},
		"it has never answered → not":                         {[]round{never}, []round{never}, 9, false},
		"a share that has just started says nothing → silent": {[]round{yes}, []round{no, never}, 3, true},
		"the share that answered has left → not":              {[]round{yes}, []round{never}, 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsked()
			a.times(3, map[string][]round{"x": c.before})
			got := a.times(c.ticks, map[string][]round{"x": c.then})
			assert.Equal(t, c.silent, len(got) == 1)
			assert.Equal(t, c.silent, a.mayFall("x", "", a.begin("x", a.now), a.now))
		})
	}
}

// The first question after a node was silent, is new or was forgotten gets half a second for its answer, like all
// others.
func TestAQuestionThatWasNotAskedIsNotUnanswered(t *testing.T) {
	a := newAsked()
	assert.Empty(t, a.times(3, map[string][]round{"x": {no}}), "the first tick asks the first question")
	assert.Equal(t, []string{"x"}, a.times(1, map[string][]round{"x": {no}}))
	assert.Empty(t, a.times(1, map[string][]round{}), "it serves no share any more")
	assert.False(t, a.mayFall("x", "", a.epoch, a.now))
	assert.Empty(t, a.times(3, map[string][]round{"x": {no}}))
	assert.Equal(t, []string{"x"}, a.times(1, map[string][]round{"x": {no}}))
	a.lives("x")
	assert.False(t, a.mayFall("x", "", a.epoch, a.now))
	assert.Empty(t, a.times(3, map[string][]round{"x": {no}}))
	assert.Equal(t, []string{"x"}, a.times(1, map[string][]round{"x": {no}}))
}

func TestALateTickStartsTheCountAgain(t *testing.T) {
	silent := map[string][]round{"x": {no}}
	a := newAsked()
	a.times(3, map[string][]round{"x": {yes}})
	a.times(2, silent)
	assert.Equal(t, []string{"x"}, a.after(750*time.Millisecond, silent), "250 ms late is on time")
	epoch := a.begin("x", a.now)
	assert.True(t, a.mayFall("x", "", epoch, a.now.Add(750*time.Millisecond)))
	assert.False(t, a.mayFall("x", "", epoch, a.now.Add(751*time.Millisecond)), "the loop stands still")

	assert.Empty(t, a.after(751*time.Millisecond, silent))
	assert.Empty(t, a.times(2, silent))
	assert.Equal(t, []string{"x"}, a.times(1, silent))
	assert.False(t, a.mayFall("x", "", epoch, a.now), "it was judged before the loop was late")
	assert.True(t, a.mayFall("x", "", a.begin("x", a.now), a.now))
}

func TestASilentNodeIsJudgedEachSecond(t *testing.T) {
	a := newAsked()
	silent := map[string][]round{"x": {no}}
	assert.Equal(t, []string{"x"}, a.times(4, silent))
	a.begin("x", a.now)
	assert.Empty(t, a.times(1, silent))
	assert.Equal(t, []string{"x"}, a.times(1, silent))
}

func TestTwoNodesThatFallSilentTogetherWait(t *testing.T) {
	run := func(apart int) *asked { // ticks between the two silences
		a := newAsked()
		a.times(3, map[string][]round{"x": {yes}, "y": {yes}})
		a.times(3, map[string][]round{"x": {no}, "y": {yes}})
		assert.True(t, a.mayFall("x", "", a.epoch, a.now))
		for range apart {
			a.times(1, map[string][]round{"x": {no}, "y": {yes}})
		}
		return a
	}
	both := map[string][]round{"x": {no}, "y": {no}}

	a := run(0)
	a.times(3, both) // y is silent 1.5 s after x
	assert.False(t, a.mayFall("y", "", a.epoch, a.now))
	assert.False(t, a.mayFall("x", "", a.epoch, a.now), "also the first, whose judgement may be under way")
	assert.Equal(t, []string{"x"}, a.times(10, both), "8 s after its first unanswered question")
	assert.False(t, a.mayFall("y", "", a.epoch, a.now))
	a.begin("x", a.now)
	assert.Empty(t, a.times(1, both))
	assert.Equal(t, []string{"x"}, a.times(1, both))
	assert.Equal(t, []string{"x", "y"}, a.times(1, both))

	a = run(3)
	assert.Equal(t, []string{"x", "y"}, a.times(3, both), "3 s after: not together")

	a = newAsked()
	a.times(3, map[string][]round{"x": {yes}, "y": {yes}})
	a.times(2, map[string][]round{"x": {no}, "y": {yes}})
	a.times(1, map[string][]round{"x": {yes}, "y": {no}})
	assert.Equal(t, []string{"y"}, a.times(2, map[string][]round{"x": {yes}, "y": {no}}), "x missed two questions: it was not silent")
	a.times(40, map[string][]round{"x": {yes}, "y": {yes}})
	assert.Empty(t, a.silences, "a silence that is over is forgotten")

	a = run(0)
	a.lives("x") // it was only slow, and still is
	a.times(3, map[string][]round{"x": {yes}, "y": {no}})
	assert.False(t, a.mayFall("y", "", a.epoch, a.now), "a silence counts for the other though it was short")

	a = run(0)
	a.times(2, map[string][]round{"y": {yes}}) // x is reported as down, and its shares have left it
	assert.Empty(t, a.times(3, map[string][]round{"y": {no}}), "a node that was called down counts for the next")
}

func TestANodeWhoseShareHangsBrakesNoOther(t *testing.T) {
	xHangs := func() *asked { // x lives, according to each judgement, and answers no question
		a := newAsked()
		a.times(3, map[string][]round{"x": {yes}, "y": {yes}})
		for range 3 {
			require.Equal(t, []string{"x"}, a.times(3+1, map[string][]round{"x": {no}, "y": {yes}})[:1])
			a.begin("x", a.now)
			a.lives("x")
		}
		return a
	}
	silent := map[string][]round{"x": {no}, "y": {no}}
	a := xHangs()
	assert.Empty(t, a.times(3, silent), "nothing of x has answered since y fell silent")
	assert.Equal(t, []string{"x"}, a.times(1, silent), "in spite of the brake")
	assert.False(t, a.mayFall("x", "", a.begin("x", a.now), a.now), "which holds a verdict on x, too")
	assert.False(t, a.mayFall("y", "", a.epoch, a.now))
	a.lives("x")
	assert.True(t, a.mayFall("y", "", a.epoch, a.now))
	assert.Equal(t, []string{"y"}, a.times(1, silent))

	a = xHangs()
	a.times(4, silent)
	a.begin("x", a.now) // and nothing of x answers: it has lost its network together with y
	assert.Empty(t, a.times(1, silent))
	assert.False(t, a.mayFall("y", "", a.epoch, a.now))

	a = xHangs()
	a.times(1, map[string][]round{"x": {yes}, "y": {yes}}) // it no longer hangs
	assert.Empty(t, a.times(3, silent))
	assert.Empty(t, a.times(3, silent), "the brake holds both")
}

func TestTheOrderOfWitnesses(t *testing.T) {
	daemons := []daemon{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}, {"e", "5"}}
	var order []string
	for _, d := range byRelation(daemons, users{mounts: []string{"e", "c", "x"}, replicas: []string{"d", "c"}}) {
		order = append(order, d.node)
	}
	assert.Equal(t, []string{"c", "e", "d", "a", "b"}, order)
}

func TestAVerdictThatProvedWrongBarsTheNext(t *testing.T) {
	a := newAsked()
	silent := map[string][]round{"x": {no}}
	a.times(4, silent)
	may := func(boot string, after time.Duration) bool {
		b := a.bars["x"]
		at := a.lastTick
		a.lastTick = at.Add(after) // as if ticks had come
		defer func() { a.lastTick = at }()
		assert.NotZero(t, b.until)
		return a.mayFall("x", boot, a.epoch, at.Add(after))
	}
	assert.Equal(t, 10*time.Minute, a.wrong("x", "boot-1", a.now).length)
	assert.False(t, may("boot-1", 10*time.Minute-1))
	assert.True(t, may("boot-1", 10*time.Minute))
	assert.True(t, may("boot-2", 0), "it has booted since: the verdict was right")

	now := a.now
	for _, minutes := range []time.Duration{20, 40, 80, 160, 320, 640, 1280, 1440, 1440} {
		want := minutes * time.Minute
		now = now.Add(time.Hour)
		b := a.wrong("x", "boot-1", now)
		assert.Equal(t, want, b.length)
		assert.Equal(t, now.Add(want), b.until)
	}
	assert.Equal(t, 10*time.Minute, a.wrong("x", "boot-2", now).length)
	assert.Equal(t, 20*time.Minute, a.wrong("x", "boot-2", now.Add(10*time.Minute+24*time.Hour-1)).length)
	assert.Equal(t, 10*time.Minute, a.wrong("x", "boot-2", now.Add(100*time.Hour)).length, "it was quiet for a day")
	assert.Equal(t, 10*time.Minute, a.wrong("y", "boot-2", now).length)
}
