package datastore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func eventAt(name string, seconds int64) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"not": "shown"}},
		InvolvedObject: corev1.ObjectReference{APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Volume", Name: "vol"},
		LastTimestamp:  metav1.Unix(seconds, 0),
	}
}

func namesOf(events []*corev1.Event) []string {
	names := []string{}
	for _, e := range events {
		names = append(names, e.Name)
	}
	return names
}

// TestEventsAreWatchedWhileSomebodyReadsThem, and no longer.
func TestEventsAreWatchedWhileSomebodyReadsThem(t *testing.T) {
	kube := fake.NewClientset(eventAt("a", 1))
	e := newEvents(kube, "ns")
	e.linger = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); e.wait() }()
	e.start(ctx)
	watching := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.watch != nil
	}
	assert.False(t, watching(), "nobody has asked")

	changed := make(chan struct{}, 1000)
	stop, err := e.OnChange(func() { changed <- struct{}{} })
	require.NoError(t, err)
	<-changed
	got, err := e.List(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, namesOf(got))
	assert.Empty(t, got[0].Labels, "the cache has what is shown")
	_, err = kube.CoreV1().Events("ns").Create(ctx, eventAt("b", 2), metav1.CreateOptions{})
	require.NoError(t, err)
	<-changed
	got, err = e.List(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, namesOf(got))
	assert.True(t, watching())
	stop()
	require.Eventually(t, func() bool { return !watching() }, 2*time.Minute, time.Millisecond)

	got, err = e.List(ctx)
	require.NoError(t, err)
	assert.Len(t, got, 2, "it is watched anew")
	require.Eventually(t, func() bool { return !watching() }, 2*time.Minute, time.Millisecond)
	cancel()
	got, err = e.List(t.Context())
	require.NoError(t, err, "a late reader is answered without a watch")
	assert.Len(t, got, 2)
	assert.False(t, watching())
}

// TestTheNewestEventsAreShown, by name, and only of our objects.
func TestTheNewestEventsAreShown(t *testing.T) {
	var events []*corev1.Event
	for i := range maxEvents + 2 {
		events = append(events, eventAt(fmt.Sprintf("e%04d", 9999-i), int64(i+1)))
	}
	other := eventAt("other", 1e9)
	other.InvolvedObject.APIVersion = "v1"
	got := newest(append(events, other))
	require.Len(t, got, maxEvents)
	assert.Equal(t, "e8998", got[0].Name)
	assert.Equal(t, "e9997", got[maxEvents-1].Name, "the two oldest are left out")
}
