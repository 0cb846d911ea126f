package archtest

// module is this module's path. All patterns below are relative to it.
const module = "github.com/longhorn-lep/longhorn-manager"

// rule says which packages of this module the packages of a pattern may import. A pattern is a path, or a path with
// "/..." for the package and all packages below it. The first matching rule applies, so narrow patterns stand first. A
// package may always import the packages below it.
type rule struct {
	pattern string
	may     []string
	// because says what a package of this pattern must not know, and why.
	because string
}

// rules is the table of the import directions, from the top of the program down.
var rules = []rule{
	{".", []string{"app"}, "the process entry only calls app; wiring is in one place"},
	{"app/...", []string{"..."}, "app alone knows both halves"},

	// Control plane.
	{"controller/queue", []string{"types", "util/..."}, "the loop serves every kind and knows none"},
	{
		"controller/nodestate",
		[]string{"controller/queue", "types", "k8s/apis/..."},
		"controllers ask it before they act in place of a node that is down or gone; it knows none of them",
	},
	{
		"controller/node",
		[]string{"controller/nodestate", "controller/queue", "datastore", "scheduler", "disk", "dataplane/membership", "settings", "types", "k8s/apis/...", "util/..."},
		"controllers meet in the API, not in each other's code; the data plane is reached through interfaces they declare",
	},
	{
		"controller/engineteardown",
		[]string{"controller/queue", "types", "k8s/apis/..."},
		"the rules that the node's controller and the leader's share depend on the Engine alone",
	},
	{
		"controller/replicateardown",
		[]string{"types", "k8s/apis/..."},
		"the rules that the node's controller and the leader's share depend on the records of a volume alone",
	},
	{
		"controller/engine",
		[]string{
			"controller/engineteardown", "controller/line", "controller/nodestate", "controller/queue", "datastore", "scheduler", "dataplane/membership",
			"dataplane/layers",
			"settings", "types", "k8s/apis/...", "util/...",
		},
		"it shares with the leader's controller only the rules of an engine's teardown; controllers meet in the API, not in each other's code",
	},
	{
		"controller/line",
		[]string{"dataplane/layers", "types", "k8s/apis/..."},
		"the record of snapshots is converted between the object and the rules: values in, values out",
	},
	{
		"controller/snapshot",
		[]string{"controller/line", "controller/queue", "datastore", "dataplane/layers", "settings", "types", "k8s/apis/...", "util/..."},
		"it applies the rules of snapshots to the object; the engine's controller asks the data plane",
	},
	{
		"controller/replica",
		[]string{"controller/replicateardown", "controller/nodestate", "controller/queue", "datastore", "scheduler", "dataplane/membership", "types", "k8s/apis/...", "util/..."},
		"it shares with the leader's controller only the rules of a replica's teardown; controllers meet in the API, not in each other's code",
	},
	{
		"controller/strandedreplica",
		[]string{"controller/nodestate", "controller/queue", "controller/replicateardown", "datastore", "types", "k8s/apis/..."},
		"the leader cannot ask a node's data plane, so it must not know package replica",
	},
	{
		"controller/strandedengine",
		[]string{"controller/engineteardown", "controller/nodestate", "controller/queue", "datastore", "types", "k8s/apis/..."},
		"the leader cannot ask a node's data plane, so it must not know package engine",
	},
	{
		"controller/volume/children",
		[]string{"scheduler", "types", "k8s/apis/..."},
		"an object of a volume is built from the volume and a place; who writes it is decided elsewhere",
	},
	{
		"controller/volume/copies",
		[]string{"controller/volume/children", "scheduler", "settings", "types", "k8s/apis/..."},
		"which replicas a volume has and should have depends on values alone; the controller above it reads and writes the objects",
	},
	{
		"controller/...",
		[]string{"controller/nodestate", "controller/queue", "datastore", "scheduler", "dataplane/membership", "settings", "types", "k8s/apis/...", "util/..."},
		"controllers meet in the API, not in each other's code; the data plane is reached through interfaces they declare",
	},
	{
		"manager/...",
		[]string{"datastore", "explain", "scheduler", "settings", "types", "k8s/apis/...", "util/..."},
		"use cases write intent; they know neither HTTP nor controllers nor the engines' wire",
	},
	{"metrics", []string{"types", "k8s/apis/..."}, "a scrape only reads what the caches hold: no verbs of the datastore, no controllers"},
	{"api/v1", nil, "wire structs are shared with clients, who must need nothing else"},
	{"api/client", []string{"api/v1"}, "a client must need nothing but the wire structs"},
	{"api", []string{"manager", "settings", "types", "api/v1", "util/..."}, "handlers translate; objects and stores are behind manager"},
	{"ui", nil, "the page asks the REST API like any client; the program only holds its files"},
	{"csi/sidecar", []string{"types", "util/..."}, "the loops speak CSI and Kubernetes; our own objects are the driver's business"},
	{
		"csi/...",
		[]string{"api/client", "api/v1", "share/nfsclient", "types", "k8s/apis/...", "util/..."},
		"the driver talks to the REST API like any client: no datastore, no controllers, no clientset; it asks NFS servers for answers as the share manager does",
	},
	{
		"datastore/...",
		[]string{"k8s/apis/...", "k8s/client/...", "settings", "types", "util/..."},
		"the store has verbs, no policy: whoever decides imports it, not the other way round",
	},

	// Data plane.
	{
		"dataplane/instance/...",
		[]string{"dataplane/instance/...", "dataplane/device/...", "dataplane/engine/...", "dataplane/replica/...", "dataplane/nbd/...", "dataplane/membership", "dataplane/layers", "disk", "util/..."},
		"the data plane must run, be tested and be read without Kubernetes",
	},
	{
		"dataplane/device/...",
		[]string{"dataplane/device/...", "dataplane/fuse", "dataplane/nbd/...", "util/..."},
		"a device passes requests to a backend and knows neither engines nor replicas",
	},
	{"dataplane/fuse", nil, "the kernel's protocol; nothing of ours belongs in it"},
	{
		"dataplane/engine/...",
		[]string{"dataplane/engine/...", "dataplane/nbd/...", "dataplane/membership", "dataplane/layers", "dataplane/points", "util/..."},
		"an engine reaches replicas through an interface it declares, local and remote alike",
	},
	{
		"dataplane/chain",
		[]string{"dataplane/layers", "dataplane/nbd", "dataplane/replica/fsys/..."},
		"it carries out the rules of the layers on files; a replica uses it, and it knows no replica",
	},
	{
		"dataplane/replica/...",
		[]string{
			"dataplane/replica/...", "dataplane/chain", "dataplane/layers", "dataplane/points", "dataplane/nbd/...", "dataplane/membership",
			"disk", "util/...",
		},
		"a replica owns bytes on a disk and trusts no engine",
	},
	{"dataplane/nbd/...", []string{"dataplane/nbd/...", "util/..."}, "the protocol is published; nothing of ours belongs in it"},
	{"share", []string{"types", "util/..."}, "the process in a share-manager pod has no API access"},
	{"share/nfsclient", nil, "the wire of NFS is published; nothing of ours belongs in it"},
	{"share/...", []string{"types", "util/..."}, "what a share manager is made of: the parts know neither it nor each other"},

	// The basis of both halves.
	{"scheduler/...", []string{"k8s/apis/...", "settings", "types"}, "placement is values in, values out"},
	{
		"explain/...",
		[]string{"disk", "scheduler", "k8s/apis/...", "settings", "types", "util/mount"},
		"findings are values out of objects: the command line and a page of a browser show the same, so it knows no client, no store and no controller",
	},
	{"disk/...", []string{"util/..."}, "the scanner knows kernel files, not Kubernetes"},
	{"dataplane/membership/explore", []string{"dataplane/membership"}, "it explores the rules and nothing else"},
	{"dataplane/layers/explore", []string{"dataplane/layers"}, "it explores the rules and nothing else"},
	{"dataplane/points", []string{"dataplane/layers"}, "messages about points; how they are sent and carried out is for the two ends"},
	{"dataplane/layers/...", nil, "the rules of snapshots are explored alone, so they stand alone"},
	{"dataplane/membership/...", nil, "the rules of who holds the data are explored alone, so they stand alone"},
	{"settings", []string{"types", "k8s/apis/...", "util/..."}, "the registry must not depend on those who read settings"},
	{"types/...", []string{"k8s/apis/...", "util/..."}, "the vocabulary must not depend on those who speak it"},
	{"util/...", []string{"util/..."}, "leaf helpers have no domain words"},
	{"k8s/apis/...", nil, "API types are imported by all"},
	{"k8s/client/...", []string{"k8s/apis/...", "k8s/client/..."}, "generated"},

	// Tests and tools.
	{
		"internal/testutil/...",
		[]string{"internal/testutil/...", "datastore", "k8s/...", "settings", "types", "controller/queue", "util/..."},
		"test helpers serve every controller and know none",
	},
	{"test/archtest", nil, "it only reads files"},
	{
		"test/controllers",
		[]string{"controller/...", "datastore", "internal/testutil/...", "k8s/apis/...", "types"},
		"controllers that meet in the API, over a fake one",
	},
	{"deploy", []string{"settings", "types"}, "manifests are data; their test only compares names"},
	{
		"test/faults",
		[]string{"dataplane/instance/...", "dataplane/engine/...", "dataplane/replica/...", "dataplane/nbd/...", "dataplane/membership"},
		"faults are injected into the data plane alone",
	},
	{
		"test/mounts",
		[]string{"dataplane/instance/...", "dataplane/nbd"},
		"disks are taken from the program as it is installed; nothing of it is called but its client",
	},
	{
		"test/bench",
		[]string{"dataplane/instance/...", "dataplane/membership"},
		"figures are of the data plane alone",
	},
	{"test/page/browser", nil, "it drives a browser, and knows nothing of what it shows"},
	{
		"test/page",
		[]string{"api", "manager", "ui", "datastore", "internal/testutil/...", "test/page/...", "types", "k8s/apis/..."},
		"the page is tested on the real API over fakes",
	},
	{
		"test/e2e",
		[]string{"datastore", "test/...", "settings", "types", "k8s/...", "api/v1", "api/client", "util/..."},
		"cluster tests use what users use; the datastore is tested on an API server, whose answers no fake can vouch for",
	},
	{
		"test/...",
		[]string{"test/...", "settings", "types", "k8s/...", "api/v1", "api/client", "util/..."},
		"cluster tests use what users use",
	},
}

// planes are the two halves. No package of one half may reach a package of the other, by any path. Only app imports
// both.
var planes = [2][]string{
	{"controller/...", "datastore/...", "manager/...", "metrics", "api/...", "csi/...", "explain/..."},
	{"dataplane/nbd/...", "dataplane/replica/...", "dataplane/engine/...", "dataplane/instance/...", "dataplane/device/...", "dataplane/fuse"},
}

// foreign lists the packages of other projects that only some packages may import.
var foreign = []struct {
	imports string
	only    []string
	because string
}{
	{
		module + "/k8s/client/...",
		[]string{"datastore/...", "app/...", "k8s/client/...", "internal/testutil/...", "test/..."},
		"the datastore is the only user of clientset and informers",
	},
	{"k8s.io/client-go/...", []string{
		"app/...", "datastore/...", "controller/...", "csi/...", "k8s/client/...", "internal/testutil/...", "util/election", "test/...",
	}, "the API server is reached through datastore, or not at all"},
	{"k8s.io/...", []string{
		"app/...", "datastore/...", "controller/...", "manager/...", "csi/...", "settings", "types/...", "scheduler/...", "explain/...", "k8s/...", "internal/...", "test/...",
		"api", "metrics", "util/...", "share/...",
	}, "the data plane and the disk scanner must run without Kubernetes (a clock is no Kubernetes)"},
	{"github.com/urfave/cli/...", []string{"app/..."}, "flags become config structs in app and nowhere else"},
}

// foreignExceptions may be imported everywhere.
var foreignExceptions = []string{"k8s.io/utils/clock", "k8s.io/utils/clock/testing"}

// pure lists the code that must give the same answer for the same values: whole packages, and the files with this name
// in any package.
var (
	purePackages = []string{"scheduler", "dataplane/membership", "dataplane/layers", "explain", "controller/line", "controller/volume/children", "controller/volume/copies"}
	pureFiles    = []string{"plan.go", "policies.go", "step.go", "target.go"}
)

// impureImports and impureCalls must not be used by pure code. Its tests may use them.
var (
	impureImports = []string{
		"context", "os", "os/...", "net", "net/...", "io/fs", "syscall", "math/rand", "math/rand/...", "crypto/rand",
		"k8s.io/client-go/...", "k8s.io/utils/clock", "k8s.io/utils/clock/...", "github.com/sirupsen/logrus", "golang.org/x/sys/...",
		module + "/datastore", module + "/k8s/client/...", module + "/controller/queue",
	}
	impureCalls = map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	}
)

// clockless lists the packages that must use an injected clock instead of the wall clock. The data plane is not among
// them: it also waits for kernels and sockets.
var clockless = []string{"controller/...", "datastore/...", "manager/...", "metrics", "scheduler/...", "disk/...", "dataplane/membership/...", "dataplane/layers/...", "settings", "types/..."}
