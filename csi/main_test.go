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
	)
}
