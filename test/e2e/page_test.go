package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/test/page/browser"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// pagePatience is how long the page may take to show something. The volume may have to be attached or rebuilt
	// first.
	pagePatience = 8 * time.Minute
	pageVolume   = "e2e-page"
	pageAccount  = "e2e-page"
	// pageRoot is the root of the repository; axe is below it.
	pageRoot = "../.."
)

// webPage is the page of the cluster's daemons in a browser. Its user has the rights that docs/FEATURES.md gives to
// users.
type webPage struct {
	*browser.Browser
	c   *cluster.Cluster
	api restAPI
	url string

	node  string // where the page's volume is used
	ns    string // of the pod
	claim string // the volume of the pod's claim
}

// TestPage does the daily work of users in the page, and checks the results there, on volumes with real data.
func TestPage(t *testing.T) {
	needBrowser(t)
	ctx, c := threeNodes.get(t, everyday)
	c.DumpIfFailed(t)
	api := restOf(ctx, t, c)
	p := &webPage{c: c, api: api, url: strings.TrimSuffix(api.base, "/v1")}
	p.needPage(ctx, t)
	p.Browser = browser.New(t, 1280, 900)
	p.Patient(pagePatience)
	t.Cleanup(func() { // removes what a failed step left
		p.deleteVolume(t)
	})
	for _, step := range []struct {
		name string
		run  func(context.Context, *testing.T)
	}{
		{"a bad token is refused, and a good one opens the page", p.logIn},
		{"a volume is made", p.create},
		{"a node takes no new replicas", p.closeNode},
		{"the volume is attached and becomes healthy", p.attach},
		{"its locality is changed: the page warns, and says why", p.changeLocality},
		{"the node takes replicas again: the warning goes", p.openNode},
		{"a replica is killed: the page shows the rebuild", p.killReplica},
		{"the volume of a pod grows beneath it", p.expand},
		{"a bad tag is refused at the field", p.refuseTag},
		{"a disk is added, by the name that the page suggests", p.addDisk},
		{"Events say what has happened", p.readEvents},
		{"the volume is detached and deleted", p.detachAndDelete},
		{"whoever logs out sees nothing more", p.logOut},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			p.For(t)
			step.run(ctx, t)
		})
		p.For(t)
		if !ok {
			return // the next steps would start from the state that the failed step left
		}
	}
	p.ExpectNoFailures()
}

// needBrowser skips the test on a machine without a browser, unless the page's tests are required (scripts/test.sh).
func needBrowser(t *testing.T) {
	t.Helper()
	if browser.Executable() == "" {
		skipPage(t, "chromium is missing; run scripts/setup")
	}
}

func skipPage(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("LONGHORN_PAGE") == "required" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// needPage skips the test if the daemons were built without the page.
func (p *webPage) needPage(ctx context.Context, t *testing.T) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", "text/html") // otherwise the REST API answers
	response, err := p.api.http.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	if !strings.Contains(string(text), `id="root"`) {
		skipPage(t, "the image has no page; run make build, then scripts/image.sh")
	}
}

// logIn logs in as an account with the rights that docs/FEATURES.md gives to users, and with the right to read Events.
func (p *webPage) logIn(ctx context.Context, t *testing.T) {
	for _, args := range [][]string{
		{"create", "serviceaccount", pageAccount},
		{"create", "role", pageAccount, "--verb=get,list,create,update,delete", "--resource=volumes.longhorn.io,nodes.longhorn.io,settings.longhorn.io"},
		{"create", "role", pageAccount + "-events", "--verb=list", "--resource=events"},
		{"create", "rolebinding", pageAccount, "--role=" + pageAccount, "--serviceaccount=" + types.Namespace + ":" + pageAccount},
		{"create", "rolebinding", pageAccount + "-events", "--role=" + pageAccount + "-events", "--serviceaccount=" + types.Namespace + ":" + pageAccount},
	} {
		object := args[1] + "/" + args[2]
		p.c.Must(ctx, t, "-n", types.Namespace, "delete", object, "--ignore-not-found") // of a failed run
		p.c.Must(ctx, t, append([]string{"-n", types.Namespace}, args...)...)
	}
	token := p.c.Must(ctx, t, "-n", types.Namespace, "create", "token", pageAccount, "--audience", types.APIAudience)

	p.Open(p.url + "/")
	p.Has("heading", "Log in to Longhorn")
	p.Type("textbox", "Token", "no-token-at-all")
	p.Click("button", "Log in")
	p.Describes("textbox", "Token", "the token is not valid")
	p.Type("textbox", "Token", token)
	p.Click("button", "Log in")
	p.Has("heading", "Dashboard")
	p.Matches(".connection[data-state=open]") // the page follows all its streams
	p.Axe(pageRoot, "the dashboard of a real cluster")
}

func (p *webPage) create(ctx context.Context, t *testing.T) {
	p.Click("link", "Volumes")
	p.Click("button", "Create volume")
	p.Type("textbox", "Name", pageVolume)
	p.Type("textbox", "Size", "128Mi")
	p.Type("textbox", "Replicas", "2")
	p.Click("button", "Create")
	p.HasNot("dialog", "Create volume")
	p.Click("link", pageVolume)
	p.Has("heading", pageVolume)
	p.Sees("detached, ")
	p.waitPlaces(ctx, t, 2)
	p.node = p.nodeWithoutReplica(ctx, t)
	t.Logf("%s is to be used on %s; its replicas: %v", pageVolume, p.node, placesOf(ctx, t, p.c, pageVolume))
}

// waitPlaces waits until the page's volume has this many replicas, each with a place.
func (p *webPage) waitPlaces(ctx context.Context, t *testing.T, count int) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "the replicas have a place", func(ctx context.Context) error {
		if places := placesOf(ctx, t, p.c, pageVolume); len(places) != count {
			return fmt.Errorf("there are %v", places)
		}
		return nil
	})
}

func (p *webPage) nodeWithoutReplica(ctx context.Context, t *testing.T) string {
	t.Helper()
	with := replicasOf(ctx, t, p.c, pageVolume)
	i := slices.IndexFunc(nodes, func(node string) bool {
		return !slices.ContainsFunc(with, func(r longhorn.Replica) bool { return r.Spec.NodeID == node })
	})
	require.GreaterOrEqual(t, i, 0, "every node has a replica")
	return nodes[i]
}

// toggleScheduling changes in the page whether the node takes new replicas.
func (p *webPage) toggleScheduling() {
	p.Click("link", "Nodes")
	p.Click("button", "Edit node "+p.node)
	p.Click("checkbox", "Enable scheduling")
	p.Click("button", "Save")
	p.HasNot("dialog", "Edit node "+p.node)
}

// closeNode runs after the page's volume was created, so p.node is known.
func (p *webPage) closeNode(ctx context.Context, t *testing.T) {
	p.toggleScheduling()
	p.Has("heading", p.node+" ● ready ○ scheduling disabled")
	assert.False(t, p.api.node(ctx, t, p.node).AllowScheduling)
}

func (p *webPage) openNode(ctx context.Context, t *testing.T) {
	p.toggleScheduling()
	p.SeesNot("scheduling disabled")
	assert.True(t, p.api.node(ctx, t, p.node).AllowScheduling)
	p.volumePage(pageVolume)
	p.HasNot("button", "No healthy replica")
	p.Sees("attached, healthy")
	p.waitPlaces(ctx, t, 2)
	assert.True(t, slices.ContainsFunc(replicasOf(ctx, t, p.c, pageVolume), func(r longhorn.Replica) bool { return r.Spec.NodeID == p.node }))
}

// volumePage opens the page of a volume by the links that users take.
func (p *webPage) volumePage(volume string) {
	p.Click("link", "Volumes")
	p.Click("link", volume)
	p.Has("button", "Actions on "+volume)
}

func (p *webPage) attach(ctx context.Context, t *testing.T) {
	p.volumePage(pageVolume)
	p.Act("Actions on "+pageVolume, "Attach")
	p.Has("dialog", "Attach "+pageVolume)
	p.Choose("Node", p.node)
	p.Click("button", "Attach")
	p.HasNot("dialog", "Attach "+pageVolume)
	p.Sees("attached, healthy")
	p.Sees("2 of 2 healthy")
	assert.Equal(t, p.node, theVolume(ctx, t, p.c, pageVolume).Status.CurrentNodeID)
}

func (p *webPage) changeLocality(ctx context.Context, t *testing.T) {
	p.Act("Actions on "+pageVolume, "Data locality")
	p.Choose("Data locality", "best-effort")
	p.Click("button", "Save")
	p.HasNot("dialog", "Data locality")
	p.Has("button", "No healthy replica on node "+p.node+", where the volume is attached: no replica can be placed on node "+p.node)
	p.Axe(pageRoot, "the page of a volume that lacks its local replica")
	assert.Equal(t, longhorn.DataLocalityBestEffort, theVolume(ctx, t, p.c, pageVolume).Spec.DataLocality)
}

// killReplica deletes one of two replicas, as a user may do by mistake. It slows the rebuild down, so that the page
// shows it.
func (p *webPage) killReplica(ctx context.Context, t *testing.T) {
	p.api.set(ctx, t, settings.RebuildingBandwidthMiBps, "4")
	p.c.MustOnNode(ctx, t, p.node, "dd", "if=/dev/urandom", "of=/dev/longhorn/"+pageVolume, "bs=1M", "count=96", "oflag=direct", "conv=notrunc,fsync", "status=none")
	replicas := replicasOf(ctx, t, p.c, pageVolume)
	i := slices.IndexFunc(replicas, func(r longhorn.Replica) bool { return r.Spec.NodeID != p.node })
	require.GreaterOrEqual(t, i, 0, "there are %v", placesOf(ctx, t, p.c, pageVolume))
	victim := replicas[i].Name
	degraded, rebuild := p.Expect("heading", "degraded"), p.Expect("progressbar", "Rebuild of "+pageVolume+"-r-")
	p.c.Must(ctx, t, "-n", types.Namespace, "delete", "replicas.longhorn.io", victim, "--wait=false")
	degraded()
	rebuild()
	p.Sees("attached, healthy")
	p.Sees("2 of 2 healthy")
	for _, r := range replicasOf(ctx, t, p.c, pageVolume) {
		assert.NotEqual(t, victim, r.Name)
	}
}

// expand lets the volume of a claim grow while a pod uses it. The file system is xfs: see TestExpansion.
func (p *webPage) expand(ctx context.Context, t *testing.T) {
	const class = "e2e-page-xfs"
	expandableClass(ctx, t, p.c, class, "xfs")
	p.ns = namespace(ctx, t, p.c, "e2e-page")
	p.claim = claimOf(ctx, t, p.c, p.ns, "data", "320Mi", class)
	pod(ctx, t, p.c, p.ns, "user", "data", idle)
	uid := p.podUID(ctx, t)

	p.Click("link", "Volumes")
	p.Type("textbox", "Search", p.ns+"/data")
	p.Click("link", p.claim)
	p.Sees(p.ns + "/data")
	p.Sees("user, ") // the pod
	called := p.ns + "/data (" + p.claim + ")"
	p.Act("Actions on "+called, "Expand")
	p.Type("textbox", "New size", "100Mi")
	p.Describes("textbox", "New size", "must be larger than the current size")
	p.Type("textbox", "New size", "448Mi")
	p.Click("button", "Expand")
	p.HasNot("dialog", "Expand "+called)
	p.Sees("448 MiB")
	p.HasNot("progressbar", "Expansion of "+called)
	p.Sees("attached, healthy")
	cluster.Eventually(ctx, t, 3*time.Minute, "the pod has the room", func(ctx context.Context) error {
		out, err := p.c.Kubectl(ctx, "-n", p.ns, "exec", "user", "--", "df", "-B1", "--output=size", "/data")
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(strings.Fields(out)[1], 10, 64)
		if err == nil && size < 360*mebibyte {
			err = fmt.Errorf("it has %d MiB", size/mebibyte)
		}
		return err
	})
	assert.Equal(t, uid, p.podUID(ctx, t), "the pod was started anew")
}

func (p *webPage) podUID(ctx context.Context, t *testing.T) string {
	t.Helper()
	pod, err := p.c.Kube.CoreV1().Pods(p.ns).Get(ctx, "user", metav1.GetOptions{})
	require.NoError(t, err)
	return string(pod.UID)
}

func (p *webPage) refuseTag(ctx context.Context, t *testing.T) {
	p.Click("link", "Nodes")
	p.Click("button", "Edit node "+p.node)
	p.Type("textbox", "Tags", "fast, über")
	p.Click("button", "Save")
	p.Describes("textbox", "Tags", `"über" is not a valid tag`)
	p.Click("button", "Cancel")
	p.HasNot("dialog", "Edit node "+p.node)
	assert.Empty(t, p.api.node(ctx, t, p.node).Tags)
}

func (p *webPage) addDisk(ctx context.Context, t *testing.T) {
	const path = "/mnt/e2e-page"
	disk := makeDisk(ctx, t, p.c, p.node, "ext4", path)
	disk.mount(ctx, t, p.node)
	p.Click("button", "Add disk to "+p.node)
	name := p.Value("textbox", "Name")
	require.Regexp(t, regexp.MustCompile(`^disk-[a-z0-9]{5}$`), name)
	t.Cleanup(func() { p.api.removeEmptiedDisk(ctx, t, p.node, name) })
	p.Type("textbox", "Path", path)
	p.Click("button", "Add")
	p.HasNot("dialog", "Add a disk to "+p.node)
	p.Has("heading", name+" "+path+" ● accepts new replicas")
	p.Axe(pageRoot, "the nodes of a real cluster")
	assert.Equal(t, path, p.api.node(ctx, t, p.node).Disks[name].Path)
}

// readEvents looks for the Events of the controllers about the previous steps.
func (p *webPage) readEvents(context.Context, *testing.T) {
	p.volumePage(pageVolume)
	p.Has("region", "Events")
	p.Matches(".events li time")
	p.Click("link", "Dashboard")
	p.Has("region", "Recent Events")
	p.Matches(".events li time")
}

func (p *webPage) detachAndDelete(ctx context.Context, t *testing.T) {
	p.volumePage(pageVolume)
	p.Act("Actions on "+pageVolume, "Detach")
	p.Click("button", "Detach")
	p.HasNot("dialog", "Detach "+pageVolume)
	p.Sees("detached, ")
	p.Act("Actions on "+pageVolume, "Delete")
	p.Has("dialog", "Delete "+pageVolume)
	p.Type("textbox", "Type “"+pageVolume+"” to confirm", pageVolume)
	p.Click("button", "Delete permanently")
	p.Has("heading", "Volumes")
	p.HasNot("link", pageVolume)
	waitVolumeGone(ctx, t, p.c, pageVolume)
}

func (p *webPage) logOut(context.Context, *testing.T) {
	p.Click("button", "Log out")
	p.Has("heading", "Log in to Longhorn")
	p.HasNot("link", "Volumes")
}

// deleteVolume removes what remains of the page's volume, and lets the node take replicas.
func (p *webPage) deleteVolume(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if p.node != "" {
		n := p.api.node(ctx, t, p.node)
		p.api.do(ctx, t, http.MethodPut, "/nodes/"+p.node, v1.NodeUpdate{AllowScheduling: true, Tags: n.Tags}, http.StatusOK, nil)
	}
	p.c.Must(ctx, t, "-n", types.Namespace, "delete", "role,rolebinding,serviceaccount", pageAccount, "--ignore-not-found")
	p.c.Must(ctx, t, "-n", types.Namespace, "delete", "role,rolebinding", pageAccount+"-events", "--ignore-not-found")
	if left := p.c.Must(ctx, t, "-n", types.Namespace, "get", "lhv", pageVolume, "--ignore-not-found", "-o", "name"); left != "" {
		p.api.do(ctx, t, http.MethodPost, "/volumes/"+pageVolume+"?action=detach", v1.DetachInput{ForceDetach: true}, http.StatusOK, nil)
		waitVolume(ctx, t, p.c, pageVolume, ".status.state", "detached")
		p.c.Must(ctx, t, "-n", types.Namespace, "delete", "lhv", pageVolume, "--timeout=90s")
	}
}
