package queue

import (
	"context"

	"github.com/sirupsen/logrus"
)

type logKey struct{}

// Log returns the log entry of the current sync, with the controller's name and the key. Outside of a sync (in a test
// that calls it directly) it returns an entry of the standard logger.
func Log(ctx context.Context) *logrus.Entry {
	if log, ok := ctx.Value(logKey{}).(*logrus.Entry); ok {
		return log
	}
	return logrus.NewEntry(logrus.StandardLogger())
}

func withLog(ctx context.Context, log *logrus.Entry) context.Context {
	return context.WithValue(ctx, logKey{}, log)
}
