package liblog

import (
	"errors"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
)

func TestLogger(t *testing.T) {
	logger, hook := logtest.NewNullLogger()
	log := New(logrus.NewEntry(logger)).WithValues("driver", "driver.example")
	log.V(4).Info("detail")
	assert.Nil(t, hook.LastEntry(), "detail was logged")
	log.Info("made", "volume", "pvc-1", "odd")
	e := hook.LastEntry()
	assert.Equal(t, logrus.InfoLevel, e.Level)
	assert.Equal(t, "made", e.Message)
	assert.Equal(t, "pvc-1", e.Data["volume"])
	assert.Equal(t, "driver.example", e.Data["driver"])
	cause := errors.New("away")
	log.Error(cause, "not made")
	e = hook.LastEntry()
	got, _ := e.Data[logrus.ErrorKey].(error)
	assert.Equal(t, logrus.ErrorLevel, e.Level, "logged %v %v", e.Level, e.Data)
	assert.ErrorIs(t, got, cause)
	logger.SetLevel(logrus.DebugLevel)
	log.V(4).Info("detail")
	e = hook.LastEntry()
	assert.Equal(t, logrus.DebugLevel, e.Level)
	assert.Equal(t, "detail", e.Message)
}
