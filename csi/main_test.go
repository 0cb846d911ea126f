package csi

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that every goroutine was waited for.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started for ever by libraries that the sanity tests bring.
		goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"),
		// external-resizer never ends what sends its Events; a process runs it once.
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/record.(*eventBroadcasterImpl).StartEventWatcher.func1"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*Broadcaster).loop"),
	)
}
