package queue

import (
	"context"

	"github.com/sirupsen/logrus"
)

type logKey struct{}

// Log returns the entry of the sync under way, with the controller's name and the key.
// Outside of a sync (in a test that calls it directly) it is the standard logger's.
func Log(ctx context.Context) *logrus.Entry {
	if log, ok := ctx.Value(logKey{}).(*logrus.Entry); ok {
		return log
	}
	return logrus.NewEntry(logrus.StandardLogger())
}

func withLog(ctx context.Context, log *logrus.Entry) context.Context {
	return context.WithValue(ctx, logKey{}, log)
}
