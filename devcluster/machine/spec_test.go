package machine

import (
	"path/filepath"
	"reflect"
	"testing"
)

func TestSpecIsReadBackAsItWasWritten(t *testing.T) {
	want := Spec{
		Hostname: "node-1",
		Root: &Root{
			Dir:    "/d",
			Tmpfs:  []string{"/run"},
			Binds:  []Bind{{From: "/a", To: "/b"}},
			Files:  map[string]string{"/etc/x": "y\n"},
			Covers: map[string]string{"/proc/sys/z": "1\n"},
			Disks:  []Disk{{Image: "/disk.img", FSType: "ext4", To: "/data"}},
		},
		Processes: []Process{{Name: "p", Argv: []string{"/bin/p", "-x"}, Env: []string{"A=1"}, Log: "/log", After: "127.0.0.1:1", Listener: true}},
	}
	file := filepath.Join(t.TempDir(), "spec.json")
	if err := want.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSpec(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
