package page

import "testing"

// TestDisksAndTags: a disk is added beside the one that is there, a bad tag is refused at its field.
func TestDisksAndTags(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Nodes")
	b.Click("button", "Change node node-1")
	b.Axe(root, "the form of a node")
	b.Type("textbox", "Tags", "fast, über")
	b.Click("button", "Change")
	b.Sees(`tags: "über" is no tag`)
	b.ExpectWrites()
	b.Type("textbox", "Tags", "fast")
	b.Click("button", "Change")
	b.HasNot("dialog", "Node node-1")
	b.Sees("tags: fast")
	b.ExpectWrites("update nodes/node-1")

	b.Click("button", "Add disk to node-2")
	b.Axe(root, "the form of a disk")
	b.Type("textbox", "Path", "relative")
	b.Click("button", "Add")
	b.Sees(`.path: "relative"`)
	b.ExpectWrites()
	b.Type("textbox", "Name", "second")
	b.Type("textbox", "Path", "/mnt/second")
	b.Click("button", "Add")
	b.HasNot("dialog", "Add a disk to node-2")
	b.Has("heading", "second /mnt/second")
	b.Has("button", "Change disk-1 of node-2")
	b.ExpectWrites("update nodes/node-2")
}

// TestSettings: a refusal stands at the field, and a value that is taken is shown.
func TestSettings(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.login("admin")
	b.Click("link", "Settings")
	b.Type("textbox", "Search", "default replica count")
	b.Type("textbox", "Value of Default Replica Count", "99")
	b.Click("button", "Save Default Replica Count")
	b.Sees("value: ")
	b.ExpectWrites()
	b.Type("textbox", "Value of Default Replica Count", "2")
	b.Click("button", "Save Default Replica Count")
	b.HasNot("button", "Save Default Replica Count")
	b.ExpectWrites("create settings/default-replica-count")
}
