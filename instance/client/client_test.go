package client

import (
	"context"
	"errors"
	"testing"
	"time"

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
				if at, has := ctx.Deadline(); !has || tc.want == nil && time.Until(at) < time.Second {
					t.Errorf("deadline %v, %t", at, has)
				}
				if tc.want == nil {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
			if err := withDeadline(tc.timeout)(tc.ctx, "method", nil, nil, nil, hangs); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
}
