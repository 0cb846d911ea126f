package nbd_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// echo is a memory backend with a control that answers with op and payload.
type echo struct{ nbd.Backend }

func (echo) Control(_ context.Context, op uint16, payload []byte) ([]byte, error) {
	switch op {
	case 1:
		return nil, nil
	case 2:
		return nil, &nbd.Error{Errno: nbd.EPERM, Msg: "not now"}
	case 3:
		return make([]byte, nbd.MaxControl+1), nil
	}
	return append(fmt.Appendf(nil, "%d:", op), payload...), nil
}

func TestControl(t *testing.T) {
	m := memory.New(1 << 20)
	mine := &nbd.Export{Name: "mine", Size: 1 << 20, Backend: echo{m}}
	ro := &nbd.Export{Name: "ro", Size: 1 << 20, ReadOnly: true, Backend: echo{m}}
	_, path := listen(t, serving(mine, ro, m.Export("plain")), nbd.ServerOptions{})
	long := strings.Repeat("x", nbd.MaxControl-6)
	for _, tc := range []struct {
		name, export string
		op           uint16
		payload      string
		want         string
		err          error
	}{
		{name: "payload both ways", export: "mine", op: 7, payload: "hello", want: "7:hello"},
		{name: "the highest op", export: "mine", op: 65535, want: "65535:"},
		{name: "nothing both ways", export: "mine", op: 1},
		{name: "the longest reply", export: "mine", op: 65535, payload: long, want: "65535:" + long},
		{name: "refused by the backend → its error", export: "mine", op: 2, err: nbd.EPERM},
		{name: "too long a payload → not sent", export: "mine", op: 9, payload: long + "1234567", err: nbd.EINVAL},
		{name: "too long a reply → an error", export: "mine", op: 3, err: nbd.EOVERFLOW},
		{name: "a backend without control → refused, the payload skipped", export: "plain", op: 9, payload: "x", err: nbd.EINVAL},
		{name: "a read-only export → refused", export: "ro", op: 9, payload: "x", err: nbd.EINVAL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := dial(t, path, tc.export, nbd.DialOptions{})
			got, err := c.Control(within(t), tc.op, []byte(tc.payload))
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.err == nil, err == nil)
			require.Equal(t, tc.want, string(got))
			assert.NoError(t, c.ReadAt(within(t), make([]byte, 512), 0))
		})
	}
}

func TestConcurrentControlsAndWrites(t *testing.T) {
	_, path := listen(t, serving(&nbd.Export{Name: "v", Size: 1 << 20, Backend: echo{memory.New(1 << 20)}}), nbd.ServerOptions{})
	c := dial(t, path, "v", nbd.DialOptions{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 100 {
				text := fmt.Sprintf("%d of %d", n, i)
				got, err := c.Control(context.Background(), uint16(100+i), []byte(text))
				if want := fmt.Sprintf("%d:%s", 100+i, text); err != nil || string(got) != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
					return
				}
				if err := c.WriteAt(context.Background(), []byte(text), int64(i)*4096, false); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestWriteAsync(t *testing.T) {
	m := memory.New(1 << 20)
	f := faulty.Wrap(m, clock.RealClock{})
	_, path := listen(t, serving(&nbd.Export{Name: "v", Size: 1 << 20, Backend: f}), nbd.ServerOptions{})
	c := dial(t, path, "v", nbd.DialOptions{})
	outcome := make(chan error, 64)
	told := func(err error) { outcome <- err }

	t.Run("many at once → each is told once, and all bytes are there", func(t *testing.T) {
		want := make([]byte, 64*4096)
		for i := range 64 {
			p := bytes.Repeat([]byte{byte(i + 1)}, 4096)
			copy(want[i*4096:], p)
			c.WriteAsync(p, int64(i)*4096, i%2 == 0, told)
		}
		for range 64 {
			require.NoError(t, receive(t, outcome, "an outcome"))
		}
		got := make([]byte, len(want))
		err := m.ReadAt(t.Context(), got, 0)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(got, want), "other bytes than written")
	})
	t.Run("refused → told so", func(t *testing.T) {
		c.WriteAsync(make([]byte, 512), 1<<20, false, told)
		assert.ErrorIs(t, receive(t, outcome, "an outcome"), nbd.ENOSPC)
	})
	t.Run("failed by the backend → told so", func(t *testing.T) {
		defer f.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Err: nbd.EIO})()
		c.WriteAsync(make([]byte, 512), 0, true, told)
		assert.ErrorIs(t, receive(t, outcome, "an outcome"), nbd.EIO)
	})
	t.Run("connection closed while under way → unknown outcome; later → not sent", func(t *testing.T) {
		g := faulty.NewGate()
		defer g.Open()
		f.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
		lost := dial(t, path, "v", nbd.DialOptions{CloseTimeout: 1})
		lost.WriteAsync(make([]byte, 512), 0, false, told)
		receive(t, g.Arrived(), "the write")
		_ = lost.Close()
		assert.ErrorIs(t, receive(t, outcome, "an outcome"), nbd.ErrUnknownOutcome)
		lost.WriteAsync(make([]byte, 512), 0, false, told)
		assert.ErrorIs(t, receive(t, outcome, "an outcome"), nbd.ErrNotSent)
	})
}
