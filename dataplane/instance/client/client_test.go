package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
)

func TestNoCallIsWithoutADeadline(t *testing.T) {
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, tc := range []struct {
		name    string
		ctx     context.Context
		timeout time.Duration
		want    error
	}{
		{"a caller without a deadline is given one", t.Context(), time.Nanosecond, context.DeadlineExceeded},
		{"a caller's own deadline stands", soon, time.Nanosecond, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hangs := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				at, has := ctx.Deadline()
				assert.True(t, has, "deadline %v", at)
				if tc.want == nil {
					assert.GreaterOrEqual(t, time.Until(at), time.Second)
				}
				if tc.want == nil {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
			assert.ErrorIs(t, withDeadline(tc.timeout)(tc.ctx, "method", nil, nil, nil, hangs), tc.want)
		})
	}
}
