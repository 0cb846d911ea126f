package queue

import (
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
)

func pod(name, version, volume string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: version, Labels: map[string]string{"volume": volume},
	}}
}

func TestHandlerAddsTheKeysOfAnEvent(t *testing.T) {
	cases := []struct {
		name  string
		event func(cache.ResourceEventHandler)
		want  []string
	}{
		{"added → its key", func(h cache.ResourceEventHandler) { h.OnAdd(pod("p", "1", "a"), false) }, []string{"a"}},
		{"updated, same owner → its key once", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("p", "1", "a"), pod("p", "2", "a")) }, []string{"a"}},
		{"updated, another owner → both keys", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("p", "1", "a"), pod("p", "2", "b")) }, []string{"a", "b"}},
		{"resync without change → nothing", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("p", "1", "a"), pod("p", "1", "a")) }, nil},
		{"deleted → its key", func(h cache.ResourceEventHandler) { h.OnDelete(pod("p", "1", "a")) }, []string{"a"}},
		{"deleted unseen → key of the tombstone", func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "p", Obj: pod("p", "1", "a")})
		}, []string{"a"}},
		{"an empty key → nothing", func(h cache.ResourceEventHandler) { h.OnAdd(pod("p", "1", ""), false) }, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := New(Options[string]{Env: Env{Clock: testclock.NewFakeClock(time.Unix(0, 0)), Log: logrus.NewEntry(logrus.New())}})
			c.event(Handler(q, func(p *corev1.Pod) []string {
				return []string{p.Labels["volume"]}
			}))
			var got []string
			for range q.queue.Len() {
				key, _ := q.queue.Get()
				got = append(got, key)
			}
			q.queue.ShutDown()
			assert.Equal(t, c.want, got)
		})
	}
}
