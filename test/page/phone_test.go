package page

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// sideways returns the elements that scroll sideways.
const sideways = `[document.documentElement, ...document.querySelectorAll('main *')]
	.filter((e) => e.scrollWidth > e.clientWidth && (e === document.documentElement || ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)))
	.map((e) => e.tagName + ' ' + e.className)`

// TestVolumesOnAPhone: volumes are cards, and nothing scrolls sideways. The user sorts and selects them, and opens
// their menus, as in the table.
func TestVolumesOnAPhone(t *testing.T) {
	b := newBench(t, append(cluster(), claimed(dataVolume, "a-claim-with-quite-a-long-name-of-a-database", state{replicas: everywhere})...)...)
	b.login("admin")
	for _, width := range []int64{480, 390, 320} {
		b.Resize(width, 800)
		b.Open(b.url + "/volumes")
		b.Has("link", dataVolume)
		b.Matches(".volume-cards")
		var wide []string
		b.Evaluate(sideways, &wide)
		assert.Empty(t, wide, "at %d pixels", width)
		b.Axe(root, fmt.Sprintf("volumes at %d pixels", width))
	}
	names := func() []string {
		var list []string
		b.Evaluate(`[...document.querySelectorAll('.volume-cards a')].map((a) => a.innerText.split(/\s/)[0])`, &list)
		return list
	}
	assert.Equal(t, []string{"archive", "default/a-claim-with-quite-a-long-name-of-a-database", "orders-db"}, names()[:3])
	b.Choose("Sort by", "Size")
	b.Click("button", "Ascending")
	b.Has("button", "Descending")
	b.Matches(".volume-cards li:first-child a[href='/volumes/unplaced']")
	b.Click("checkbox", "Select unplaced")
	b.Sees("6 volumes, 1 selected")
	b.Click("checkbox", "Select all volumes that are shown")
	b.Sees("6 volumes, 6 selected")
	b.Act("Actions on unplaced", "Number of replicas")
	b.Has("dialog", "Replicas of unplaced")
	b.Click("button", "Cancel")
	b.HasNot("dialog", "Replicas of unplaced")
	b.Resize(1280, 800)
	b.Matches(".table-scroll")
	b.Sees("6 volumes, 6 selected")
	b.Click("link", "unplaced")
	b.Has("heading", "unplaced")
}

// TestManyVolumesOnAPhone: the page draws only the visible cards.
func TestManyVolumesOnAPhone(t *testing.T) {
	objs := threeNodes()
	for i := range 300 {
		objs = append(objs, volume(fmt.Sprintf("vol-%d", i), 1, state{robustness: longhorn.VolumeRobustnessHealthy, node: "node-1", replicas: everywhere})...)
	}
	b := newBench(t, objs...)
	b.Resize(390, 800)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Has("link", "vol-0")
	var most int
	b.Evaluate(`new Promise((done) => {
		let most = 0, still = 0;
		const step = () => {
			most = Math.max(most, document.querySelectorAll('.volume-cards li').length);
			still = scrollY + innerHeight >= document.documentElement.scrollHeight - 1 ? still + 1 : 0;
			if (still > 3) return done(most);
			scrollBy(0, 2000);
			requestAnimationFrame(step);
		};
		requestAnimationFrame(step);
	})`, &most)
	assert.Less(t, most, 60, "cards drawn at a time")
	b.Has("link", "vol-299")
	b.HasNot("link", "vol-0")
}
