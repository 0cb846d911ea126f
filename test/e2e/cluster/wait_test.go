package cluster

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKubectlWaitsWithSlack(t *testing.T) {
	for name, tc := range map[string]struct{ args, want []string }{
		"a wait":              {[]string{"-n", "x", "wait", "--for=condition=Ready", "--timeout=60s"}, []string{"-n", "x", "wait", "--for=condition=Ready", "--timeout=3m0s"}},
		"a deletion":          {[]string{"delete", "pod", "p", "--timeout=90s"}, []string{"delete", "pod", "p", "--timeout=4m30s"}},
		"no limit":            {[]string{"delete", "pod", "p"}, []string{"delete", "pod", "p"}},
		"a drain, as it says": {[]string{"drain", "n", "--timeout=15s"}, []string{"drain", "n", "--timeout=15s"}},
	} {
		t.Run(name, func(t *testing.T) {
			given := append([]string(nil), tc.args...)
			assert.Equal(t, tc.want, withSlack(tc.args))
			assert.Equal(t, given, tc.args, "the caller's are changed")
		})
	}
}

func TestReasonsAreOfATestAndThoseInItOnce(t *testing.T) {
	for _, name := range []string{"TestA/b", "TestA", "TestAlike"} {
		noteFailure(name, errors.New("waited"))
	}
	noteFailure("TestA", errors.New("was not removed"))
	assert.Equal(t, []string{"TestA/b: waited", "TestA: waited", "TestA: was not removed"}, reasons("TestA"))
	assert.Empty(t, reasons("TestA"))
	assert.Equal(t, []string{"TestAlike: waited"}, reasons("TestAlike"))
}
