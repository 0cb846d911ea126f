package types

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestEventReasonSaysWhatIsTheCase(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    longhorn.Condition
		want string
	}{
		{"good → the type", longhorn.Condition{Type: "Valid", Status: longhorn.ConditionTrue, Reason: "WaitsForPods"}, "Valid"},
		{"bad → the condition's reason", longhorn.Condition{Type: "Valid", Status: longhorn.ConditionFalse, Reason: "InvalidValue"}, "InvalidValue"},
		{"unknown → the condition's reason", longhorn.Condition{Type: "Ready", Status: longhorn.ConditionUnknown, Reason: "NodeDown"}, "NodeDown"},
		{"bad, without a reason → not the type", longhorn.Condition{Type: "Ready", Status: longhorn.ConditionFalse}, "NotReady"},
	} {
		assert.Equal(t, tc.want, EventReason(tc.c), tc.name)
	}
}
