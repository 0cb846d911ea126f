package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// packed is a kind of object in a bundle. Secrets are not such a kind, and must never become one.
type packed struct {
	group, version, resource string
	// everywhere: objects of all namespaces, or cluster-scoped objects. Otherwise only objects in the installation's
	// namespace are packed.
	everywhere bool
	// keep selects the objects that belong to this product; nil: all.
	keep func(o *unstructured.Unstructured) bool
}

// packedKinds are all kinds in a bundle. It also contains logs and findings.
var packedKinds = []packed{
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "volumes", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "volumeattachments", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "engines", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "replicas", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "nodes", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "instancemanagers", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "sharemanagers", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "snapshots", false, nil},
	{longhorn.GroupName, longhorn.SchemeGroupVersion.Version, "settings", false, nil},
	{"", "v1", "nodes", true, nil},
	{"", "v1", "pods", false, nil},
	{"", "v1", "events", false, nil},
	{"", "v1", "services", false, nil},
	{"", "v1", "configmaps", false, isOurConfigMap},
	{"", "v1", "persistentvolumes", true, isOurVolume},
	{"apps", "v1", "daemonsets", false, nil},
	{"apps", "v1", "deployments", false, nil},
	{"policy", "v1", "poddisruptionbudgets", false, nil},
	{"coordination.k8s.io", "v1", "leases", false, nil},
	{"storage.k8s.io", "v1", "storageclasses", true, isOurClass},
	{"storage.k8s.io", "v1", "csinodes", true, nil},
	{"storage.k8s.io", "v1", "volumeattachments", true, isOurAttachment},
}

func isOurConfigMap(o *unstructured.Unstructured) bool {
	switch o.GetName() {
	case types.DefaultSettingsConfigMap, types.StorageClassConfigMap, types.StorageClassTemplate:
		return true
	}
	return false
}

func isOurVolume(o *unstructured.Unstructured) bool {
	return field(o, "spec", "csi", "driver") == types.DriverName
}

func isOurClass(o *unstructured.Unstructured) bool {
	return field(o, "provisioner") == types.DriverName
}

func isOurAttachment(o *unstructured.Unstructured) bool {
	return field(o, "spec", "attacher") == types.DriverName
}

func field(o *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(o.Object, path...)
	return text
}

// BundleOptions specify the content of a bundle.
type BundleOptions struct {
	Cluster Cluster
	Dynamic dynamic.Interface
	// Version is the version of this program.
	Version string
	// LogBytes is the size of the part of each container's log that is packed, taken from the end.
	LogBytes int64
}

// WriteBundle writes a tar.gz with the objects of this product, Events, pods and their logs, the nodes, and the
// findings of package explain. An item that cannot be read does not stop it: the item is listed in errors.txt and in
// missing. The error is a write error, or the end of the context.
//
//	longhorn-support/version.txt findings.txt status.json errors.txt
//	longhorn-support/objects/<resource>[.<group>].yaml
//	longhorn-support/logs/<pod>/<container>[.previous].log
func WriteBundle(ctx context.Context, out io.Writer, o BundleOptions) (missing []string, err error) {
	zipped := gzip.NewWriter(out)
	b := &bundle{BundleOptions: o, tar: tar.NewWriter(zipped), at: o.Cluster.Clock.Now()}
	b.add("version.txt", []byte(fmt.Sprintf("longhorn-manager %s, %s\n", o.Version, types.Timestamp(b.at))))
	b.findings(ctx)
	for _, kind := range packedKinds {
		b.objects(ctx, kind)
	}
	b.logs(ctx)
	b.add("errors.txt", []byte(strings.Join(b.missing, "\n")))
	return b.missing, errors.Join(ctx.Err(), b.err, b.tar.Close(), zipped.Close())
}

type bundle struct {
	BundleOptions
	tar     *tar.Writer
	at      time.Time
	missing []string // the items that could not be read, and why
	err     error    // the first write error; nothing is written after it
}

// add writes a file, and removes credentials from its text.
func (b *bundle) add(name string, text []byte) {
	text = scrubText(text)
	if b.err != nil {
		return
	}
	header := &tar.Header{Name: "longhorn-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.at, Typeflag: tar.TypeReg}
	if b.err = b.tar.WriteHeader(header); b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

func (b *bundle) lacks(what string, err error) {
	b.missing = append(b.missing, fmt.Sprintf("%s: %v", what, err))
}

// findings adds the output of the commands status and explain.
func (b *bundle) findings(ctx context.Context) {
	s, err := b.Cluster.Snapshot(ctx)
	if err != nil {
		b.lacks("findings", err)
		return
	}
	status := StatusOf(s)
	data, err := json.MarshalIndent(status, "", "  ")
	if err != nil {
		b.lacks("status.json", err)
		return
	}
	b.add("status.json", data)
	var text strings.Builder
	Printer{&text, DefaultWidth}.Findings(s, "the cluster", status.Findings)
	b.add("findings.txt", []byte(text.String()))
}

// objects adds the objects of a kind, as YAML documents.
func (b *bundle) objects(ctx context.Context, kind packed) {
	gvr := schema.GroupVersionResource{Group: kind.group, Version: kind.version, Resource: kind.resource}
	name := gvr.GroupResource().String()
	client := dynamic.ResourceInterface(b.Dynamic.Resource(gvr))
	if !kind.everywhere {
		client = b.Dynamic.Resource(gvr).Namespace(b.Cluster.Namespace)
	}
	var text []byte
	for opts := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := client.List(ctx, opts)
		if err != nil {
			b.lacks(name, err)
			break
		}
		for i := range page.Items {
			o := &page.Items[i]
			if kind.keep != nil && !kind.keep(o) {
				continue
			}
			scrubObject(o)
			data, err := yaml.Marshal(o.Object)
			if err != nil {
				b.lacks(name+" "+o.GetName(), err)
				continue
			}
			text = append(append(text, "---\n"...), data...)
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			break
		}
	}
	b.add("objects/"+name+".yaml", text)
}

// logs adds the end of each container's log. For a restarted container it also adds the log of the previous run.
func (b *bundle) logs(ctx context.Context) {
	pods, err := b.Cluster.Kube.CoreV1().Pods(b.Cluster.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.lacks("logs", err)
		return
	}
	for _, pod := range pods.Items {
		for _, c := range append(append([]corev1.Container(nil), pod.Spec.InitContainers...), pod.Spec.Containers...) {
			b.log(ctx, pod.Name, c.Name, false)
		}
		for _, s := range append(append([]corev1.ContainerStatus(nil), pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
			if s.RestartCount > 0 {
				b.log(ctx, pod.Name, s.Name, true)
			}
		}
	}
}

func (b *bundle) log(ctx context.Context, pod, container string, previous bool) {
	name := "logs/" + pod + "/" + container
	if previous {
		name += ".previous"
	}
	opts := &corev1.PodLogOptions{Container: container, Previous: previous, Timestamps: true}
	stream, err := b.Cluster.Kube.CoreV1().Pods(b.Cluster.Namespace).GetLogs(pod, opts).Stream(ctx)
	if err != nil {
		b.lacks(name, err)
		return
	}
	defer stream.Close()
	text, err := tail(stream, b.LogBytes)
	if err != nil {
		b.lacks(name, err)
	}
	b.add(name+".log", text)
}

// tail returns the last bytes of a stream. If bytes were omitted, the result starts at the start of a line. If
// reading fails, the bytes before the error are returned with it.
func tail(r io.Reader, most int64) ([]byte, error) {
	var kept []byte
	cut := false
	for chunk := make([]byte, 64<<10); ; {
		n, err := r.Read(chunk)
		kept = append(kept, chunk[:n]...)
		if err == nil && int64(len(kept)) < 2*most { // bytes are moved once, not at every read
			continue
		}
		if over := int64(len(kept)) - most; over > 0 {
			kept, cut = append(kept[:0], kept[over:]...), true
		}
		if err == nil {
			continue
		}
		if i := bytes.IndexByte(kept, '\n'); cut && i >= 0 {
			kept = kept[i+1:]
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return kept, err
	}
}
