package explain

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestACommandHasPlainWordsAlone: users paste commands into the shell of a node, and other users choose the names.
func TestACommandHasPlainWordsAlone(t *testing.T) {
	list := []Step{{Text: "Mount {path} of {disk}", Command: "mount {path}"}, {Text: "Look at {node}", Command: "kubectl describe node {node}"}}
	for _, c := range []struct {
		name, path string
		want       string
	}{
		{"a path as they are", "/mnt/disk-1_a.b", "mount /mnt/disk-1_a.b"},
		{"another command behind it", "/mnt/x;reboot", ""},
		{"a command in it", "/mnt/$(reboot)", ""},
		{"a space", "/mnt/my disk", ""},
		{"a quote", "/mnt/'x", ""},
		{"a line's end", "/mnt/x\nreboot", ""},
	} {
		got := place{"path": c.path, "disk": "{path}", "node": "node-1"}.steps(list)
		assert.Equal(t, []Step{
			{Text: "Mount " + c.path + " of {path}", Command: c.want},
			{Text: "Look at node-1", Command: "kubectl describe node node-1"},
		}, got, c.name)
	}
}
