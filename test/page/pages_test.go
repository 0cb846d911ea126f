package page

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/page/browser"
)

// TestLocality: the warning gives the reason, and disappears when there is a local replica.
func TestLocality(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/volumes/search-index")
	b.Has("button", "No healthy replica on node node-3, where the volume is attached: node-3: insufficient storage")
	with := volume("search-index", 30, state{robustness: longhorn.VolumeRobustnessHealthy, locality: longhorn.DataLocalityBestEffort, node: "node-3", replicas: everywhere})
	b.add(with[len(with)-1])
	b.change(with[:len(with)-1]...)
	b.HasNot("button", "No healthy replica")
}

// TestPagesAreAccessible: axe finds no violation in any page, dark or light, wide or narrow.
func TestPagesAreAccessible(t *testing.T) {
	b := newBench(t, append(cluster(), lately()...)...)
	look := func(name, path, sees string) {
		for _, colours := range []string{browser.Light, browser.Dark} {
			b.Prefer(colours)
			for _, width := range []int64{1280, 390} {
				b.Resize(width, 800)
				b.Open(b.url + path)
				b.Sees(sees)
				b.Axe(root, name+", "+colours)
				var overflow bool
				b.Evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth", &overflow)
				assert.False(t, overflow, "%s at %d pixels scrolls sideways", name, width)
				if *screenshots != "" {
					size := map[int64]string{1280: "", 390: "-phone"}[width]
					b.Screenshot(filepath.Join(*screenshots, name+"-"+colours+size+".png"))
				}
			}
		}
	}
	look("login", "/", "Log in to Longhorn")
	b.login("admin")
	for _, page := range []struct{ name, path, sees string }{
		{"dashboard", "/", "What needs attention"},
		{"volumes", "/volumes", "orders-queue"},
		{"volume", "/volumes/orders-queue", "rebuilding"},
		{"nodes", "/nodes", "node-3"},
		{"settings", "/settings", "Over"},
	} {
		look(page.name, page.path, page.sees)
	}
}

// TestAThousandVolumesScroll: the page draws only the visible rows, however many volumes exist. The log contains the
// times of the frames.
func TestAThousandVolumesScroll(t *testing.T) {
	objs := threeNodes()
	for i := range 1000 {
		objs = append(objs, volume(fmt.Sprintf("vol-%d", i), 1, state{robustness: longhorn.VolumeRobustnessHealthy, node: "node-1", replicas: everywhere})...)
	}
	b := newBench(t, objs...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Sees("1,000 volumes")
	var frames struct {
		Rows        int
		Median, P95 float64
		Last        string
	}
	b.Evaluate(`new Promise((done) => {
		const scroller = document.querySelector('.table-scroll'), times = []
		let last = performance.now(), rows = 0
		const step = (now) => {
			times.push(now - last); last = now
			rows = Math.max(rows, scroller.querySelectorAll('tbody tr').length)
			scroller.scrollTop += 200
			if (scroller.scrollTop + scroller.clientHeight < scroller.scrollHeight - 1) return requestAnimationFrame(step)
			requestAnimationFrame(() => requestAnimationFrame(() => {
				times.sort((a, b) => a - b)
				const names = [...scroller.querySelectorAll('tbody th')]
				done({Rows: rows, Median: times[times.length >> 1], P95: times[Math.floor(times.length * .95)], Last: names[names.length - 1].innerText.trim()})
			}))
		}
		requestAnimationFrame(step)
	})`, &frames)
	t.Logf("1,000 volumes, scrolled to the end: a frame takes %.1f ms (median), %.1f ms (95 of 100)", frames.Median, frames.P95)
	assert.Equal(t, "vol-999", frames.Last)
	assert.Less(t, frames.Rows, 100, "rows drawn at a time")
	b.Type("textbox", "Search", "vol-77")
	b.Sees("11 of 1,000 volumes")
}
