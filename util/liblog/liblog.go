// Package liblog passes the logr messages of libraries to logrus. It must not know which libraries log.
package liblog

import (
	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
)

// New passes the libraries' messages to this process's log. Messages at the libraries' default level are Info; all
// others are Debug.
func New(log *logrus.Entry) logr.Logger { return logr.New(&logSink{entry: log}) }

type logSink struct{ entry *logrus.Entry }

// quietLevel is the first of the libraries' levels that becomes Debug.
const quietLevel = 1

func (s *logSink) Init(logr.RuntimeInfo) {}

func (s *logSink) Enabled(level int) bool {
	return level < quietLevel || s.entry.Logger.IsLevelEnabled(logrus.DebugLevel)
}

func (s *logSink) Info(level int, message string, pairs ...any) {
	entry := s.entry.WithFields(logFields(pairs))
	if level < quietLevel {
		entry.Info(message)
	} else {
		entry.Debug(message)
	}
}

func (s *logSink) Error(err error, message string, pairs ...any) {
	s.entry.WithFields(logFields(pairs)).WithError(err).Error(message)
}

func (s *logSink) WithValues(pairs ...any) logr.LogSink {
	return &logSink{entry: s.entry.WithFields(logFields(pairs))}
}

func (s *logSink) WithName(name string) logr.LogSink {
	return &logSink{entry: s.entry.WithField("logger", name)}
}

// logFields converts alternating keys and values; a missing value is nil.
func logFields(pairs []any) logrus.Fields {
	fields := logrus.Fields{}
	for i := 0; i < len(pairs); i += 2 {
		key, ok := pairs[i].(string)
		if !ok {
			continue
		}
		var value any
		if i+1 < len(pairs) {
			value = pairs[i+1]
		}
		fields[key] = value
	}
	return fields
}
