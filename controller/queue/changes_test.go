package queue

import (
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
)

func TestChangesComparesWhatWasWithWhatIs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		event func(cache.ResourceEventHandler)
		want  []string
	}{
		{"new → there was none", func(h cache.ResourceEventHandler) { h.OnAdd(pod("p", "1", "a"), false) }, []string{"none then a"}},
		{"updated → both", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("p", "1", "a"), pod("p", "2", "b")) }, []string{"a then b"}},
		{"resync without change → not asked", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("p", "1", "a"), pod("p", "1", "a")) }, nil},
		{"deleted → there is none", func(h cache.ResourceEventHandler) { h.OnDelete(pod("p", "1", "a")) }, []string{"a then none"}},
		{"deleted unseen → the last known, and none", func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "p", Obj: pod("p", "1", "a")})
		}, []string{"a then none"}},
		{"an empty key → nothing", func(h cache.ResourceEventHandler) { h.OnAdd(pod("p", "1", ""), false) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := New(Options[string]{Env: Env{Clock: testclock.NewFakeClock(time.Unix(0, 0)), Log: logrus.NewEntry(logrus.New())}})
			volume := func(p *corev1.Pod) string {
				if p == nil {
					return "none"
				}
				return p.Labels["volume"]
			}
			tc.event(Changes(q, func(was, is *corev1.Pod) []string {
				if volume(is) == "" {
					return []string{""}
				}
				return []string{volume(was) + " then " + volume(is)}
			}))
			var got []string
			for range q.queue.Len() {
				key, _ := q.queue.Get()
				got = append(got, key)
			}
			q.queue.ShutDown()
			assert.Equal(t, tc.want, got)
		})
	}
}
