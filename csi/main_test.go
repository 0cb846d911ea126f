package csi

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that no goroutine is left.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Libraries that the sanity tests import start these goroutines, which never stop.
		goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"),
		// external-resizer never stops the goroutines that send its Events; a process runs it once.
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/record.(*eventBroadcasterImpl).StartEventWatcher.func1"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*Broadcaster).loop"),
	)
}
