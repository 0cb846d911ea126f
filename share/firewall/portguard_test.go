package firewall

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

// questions answers with the value that the test sets.
type questions struct {
	mu      sync.Mutex
	verdict Verdict // guarded by mu; 0: the answer never comes
	limited []bool  // guarded by mu
}

func (q *questions) answerWith(v Verdict) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.verdict = v
}

func (q *questions) ask(ctx context.Context, limited bool) (Verdict, error) {
	q.mu.Lock()
	v := q.verdict
	q.limited = append(q.limited, limited)
	q.mu.Unlock()
	if v == Unanswered {
		<-ctx.Done()
		return v, ctx.Err()
	}
	return v, nil
}

// TestPortGuard: an established connection pauses while the engine is not confirmed, and continues afterwards.
func TestPortGuard(t *testing.T) {
	d := newClientRules(t)
	conn := d.call("192.0.2.1")
	q, log := &questions{}, &syncBuffer{}
	logger := logrus.New()
	logger.SetOutput(log)
	ctx, cancel := context.WithCancel(context.Background())
	began, ended := make(chan *PortGuard, 1), make(chan struct{})
	go func() {
		defer close(ended)
		d.in(d.server, func() error {
			k, err := NewPortGuard(testPort, q.ask, boottime.Now, logrus.NewEntry(logger))
			if err != nil {
				return err
			}
			began <- k
			return k.Run(ctx)
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	k := <-began
	assert.True(t, k.IsClosed())
	d.close(conn)

	q.answerWith(Yes)
	d.heard(conn)
	assert.False(t, k.IsClosed())
	q.answerWith(Unanswered)
	d.close(conn)
	require.Eventually(t, k.IsClosed, patience, time.Millisecond)
	q.answerWith(Yes)
	d.heard(conn)
	q.answerWith(No)
	d.close(conn)
	q.answerWith(CannotTell)
	d.heard(conn)
	q.mu.Lock()
	assert.Equal(t, false, q.limited[len(q.limited)-1])
	q.mu.Unlock()
	q.answerWith(Yes)
	d.echo(conn)
	require.Eventually(t, func() bool { return d.elements(k.gate.armed(withoutLimit)) == 0 }, patience, time.Millisecond)
	d.echo(conn)
	cancel()
	<-ended
	d.close(conn) // the kernel closes the port, because nothing renews it
	text := log.String()
	assert.Contains(t, text, "is closed to clients")
	assert.Contains(t, text, "deadline exceeded", "the reason")
	assert.Contains(t, text, "is open to clients")
	d.in(d.server, k.Remove)
	d.heard(conn)
}

// A port that never opens is logged, too, once and with the reason.
func TestAPortThatStaysClosedFromTheStartIsReported(t *testing.T) {
	log := &syncBuffer{}
	logger := logrus.New()
	logger.SetOutput(log)
	k := &PortGuard{log: logrus.NewEntry(logger)}
	k.closed.Store(true)
	k.tell(true, false, Unanswered, nil)
	assert.Empty(t, log.String(), "there is no answer yet")
	k.tell(true, true, Unanswered, errors.New("deadline exceeded"))
	k.tell(true, true, Refused, errors.New("refused"))
	assert.Equal(t, 1, strings.Count(log.String(), "is closed to clients"))
	assert.Contains(t, log.String(), "deadline exceeded")
	k.tell(false, true, Yes, nil)
	k.tell(false, true, Yes, nil)
	assert.Equal(t, 1, strings.Count(log.String(), "is open to clients"))
	k.tell(true, true, No, nil)
	assert.Equal(t, 2, strings.Count(log.String(), "is closed to clients"))
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

var _ io.Writer = (*syncBuffer)(nil)

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
