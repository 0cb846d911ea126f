package liblog

import (
	"errors"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
)

func TestLogger(t *testing.T) {
	logger, hook := logtest.NewNullLogger()
	log := New(logrus.NewEntry(logger)).WithValues("driver", "driver.example")
	log.V(4).Info("detail")
	if hook.LastEntry() != nil {
		t.Errorf("detail was logged: %v", hook.LastEntry().Message)
	}
	log.Info("made", "volume", "pvc-1", "odd")
	if e := hook.LastEntry(); e.Level != logrus.InfoLevel || e.Message != "made" || e.Data["volume"] != "pvc-1" || e.Data["driver"] != "driver.example" {
		t.Errorf("logged %v %q %v", e.Level, e.Message, e.Data)
	}
	cause := errors.New("away")
	log.Error(cause, "not made")
	e := hook.LastEntry()
	if got, _ := e.Data[logrus.ErrorKey].(error); e.Level != logrus.ErrorLevel || !errors.Is(got, cause) {
		t.Errorf("logged %v %v", e.Level, e.Data)
	}
	logger.SetLevel(logrus.DebugLevel)
	log.V(4).Info("detail")
	if e := hook.LastEntry(); e.Level != logrus.DebugLevel || e.Message != "detail" {
		t.Errorf("logged %v %q", e.Level, e.Message)
	}
}
