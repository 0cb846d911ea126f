package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
)

var errNotWatched = errors.New("pods are not watched")

// telling stores the registered handlers, or refuses them with err.
type telling struct {
	handlers []cache.ResourceEventHandler
	err      error
}

func (e *telling) AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	if e.err != nil {
		return nil, e.err
	}
	e.handlers = append(e.handlers, h)
	return nil, nil
}

// heard lists, in order, the effect of each handler of e on an added object.
func (e *telling) heard(said *[]string) []string {
	*said = nil
	for _, h := range e.handlers {
		h.OnAdd(nil, false)
	}
	return *said
}

func TestWatchRegistersHandlers(t *testing.T) {
	cases := []struct {
		name                string
		secondErr           error
		first, second, last []string
		err                 string
	}{
		{
			name:  "all can be watched → each has its own handlers, in order",
			first: []string{"a", "b"}, second: []string{"c"}, last: []string{"d"},
		},
		{
			name: "one cannot be watched → the error names the controller, those after it are not registered", secondErr: errNotWatched,
			first: []string{"a", "b"}, err: "watch for controller pod-keeper: pods are not watched",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := New(Options[string]{Name: "pod-keeper", Env: Env{Clock: testclock.NewFakeClock(time.Unix(0, 0)), Log: logrus.NewEntry(logrus.New())}})
			defer q.queue.ShutDown()
			var said []string
			saying := func(word string) cache.ResourceEventHandler {
				return cache.ResourceEventHandlerFuncs{AddFunc: func(any) { said = append(said, word) }}
			}
			first, second, last := &telling{}, &telling{err: c.secondErr}, &telling{}
			err := q.Watch(
				Watch{Events: first, Handler: saying("a")},
				Watch{Events: first, Handler: saying("b")},
				Watch{Events: second, Handler: saying("c")},
				Watch{Events: last, Handler: saying("d")},
			)
			assert.ErrorIs(t, err, c.secondErr)
			if err != nil {
				assert.EqualError(t, err, c.err)
			}
			for _, e := range []struct {
				name   string
				events *telling
				want   []string
			}{{"first", first, c.first}, {"second", second, c.second}, {"last", last, c.last}} {
				assert.Equal(t, e.want, e.events.heard(&said), "handlers of the %s", e.name)
			}
		})
	}
}
