package liveness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const healthOfOwn = "10.1.0.8:9600" // of the share on the leader's node

// TestAShareIsSilentWhileItsNodeLives: the kernel of the node still accepts connections, and another share of the node
// answers.
func TestAShareIsSilentWhileItsNodeLives(t *testing.T) {
	for name, address := range map[string]string{"on another node": healthOfX, "on the leader's own node": healthOfOwn} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, threeNodes()...)
			var told []string
			b.OnSilence(func(volume string) { told = append(told, volume) })
			b.answering[address], b.accepting[healthOfX] = true, true
			assert.Zero(t, b.SilentSince(address), "nothing was asked yet")
			b.ticks(3)
			assert.Zero(t, b.SilentSince(address))
			delete(b.answering, address)
			b.ticks(1) // the question that was answered before counts
			asked := b.Clock.Now()
			b.ticks(1)
			assert.Equal(t, asked, b.SilentSince(address), "from the first question without an answer")
			b.ticks(int(tellSilence/standard.interval) - 2)
			assert.Empty(t, told)
			b.ticks(5)
			assert.Equal(t, []string{map[string]string{healthOfX: "vol", healthOfOwn: "own"}[address]}, told, "once")
			assert.Equal(t, asked, b.SilentSince(address))
			assert.Nil(t, b.silence("x"), "its node lives")

			b.answering[address] = true
			b.ticks(2)
			assert.Zero(t, b.SilentSince(address), "it answers again")
		})
	}
}

func TestWhatIsNoSilenceOfAShare(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"a share that has never answered this leader": func(b *bench) {
			b.heard = map[string]bool{}
			b.ticks(20)
		},
		"questions are turned off": func(b *bench) {
			b.ticks(20)
			b.Seed(build.Setting(settings.RWXVolumeFastFailover, "false"))
			b.CatchUp()
			b.ticks(1)
		},
		"the pod is gone": func(b *bench) {
			b.ticks(20)
			b.podHandler().OnDelete(sharePod("vol", "x", "10.1.0.7"))
			b.ticks(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, threeNodes()...)
			b.accepting[healthOfX] = true
			b.ticks(3)
			delete(b.answering, healthOfX)
			change(b)
			assert.Zero(t, b.SilentSince(healthOfX))
		})
	}
}

func TestTheSilenceOfAShareBeginsAgainAfterALateTick(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.accepting[healthOfX] = true
	b.ticks(3)
	delete(b.answering, healthOfX)
	b.ticks(20)
	assert.NotZero(t, b.SilentSince(healthOfX))
	b.Clock.Step(10 * time.Second) // this process was paused
	b.ticks(1)
	assert.Zero(t, b.SilentSince(healthOfX))
	late := b.Clock.Now()
	b.ticks(1)
	assert.Equal(t, late, b.SilentSince(healthOfX))
	assert.Equal(t, healthOfX, types.ShareHealthAddress(sharePod("vol", "x", "10.1.0.7")))
}
