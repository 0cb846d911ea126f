package sharemanager

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// at gives a pod its addresses.
func at(addresses ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.PodIP = addresses[0]
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
	}
}

// slice gives the share a slice that leads to a pod with that UID, as it is while the pod serves.
func (s *situation) slice(address string, pod kubetypes.UID) *situation {
	s.Slice = s.newSlice()
	s.Slice.UID, s.Slice.ResourceVersion = "slice", "7"
	if address != "" {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "share-manager-vol", UID: pod}, Spec: corev1.PodSpec{NodeName: "a"}}
		s.Slice.Endpoints = []discoveryv1.Endpoint{endpointTo(p, address)}
		s.Slice.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: pod}}
	}
	return s
}

// former makes the slice lead to a former pod, for that time.
func (s *situation) former(left time.Duration) *situation {
	s.Slice.Labels[types.LabelFormerPodUntil] = fmt.Sprint(now.Add(left).Unix())
	s.Slice.OwnerReferences = []metav1.OwnerReference{ownedBy(s.Share)}
	return s
}

func downNode(in *Input) { in.NodeDown = true }

func families(families ...corev1.IPFamily) func(*Input) {
	return func(in *Input) { in.Service.Spec.IPFamilies = families }
}

func TestWhereTheServiceLeads(t *testing.T) {
	running := func(change ...func(*corev1.Pod)) *situation {
		return used().was("running").pod(corev1.PodRunning, append([]func(*corev1.Pod){is("True", time.Hour), at("10.1.0.7")}, change...)...)
	}
	starts := func(change ...func(*corev1.Pod)) *situation {
		return used().was("starting").pod(corev1.PodPending, append([]func(*corev1.Pod){since("True", 0, "")}, change...)...)
	}
	for name, tc := range map[string]struct {
		in *situation
		// The slice afterwards: "address owner" and for how long the address belongs to a former pod; or "unchanged" or
		// "deleted".
		want  string
		after time.Duration
	}{
		"a pod has an address, no slice → it":                            {in: running(), want: "10.1.0.7 Pod/pod"},
		"a pod has an address and is not ready → it":                     {in: starts(at("10.1.0.8")), want: "10.1.0.8 Pod/pod"},
		"a slice without an address → it":                                {in: running().slice("", ""), want: "10.1.0.7 Pod/pod"},
		"it is in the slice → nothing is written":                        {in: running().slice("10.1.0.7", "pod"), want: "unchanged"},
		"a pod that was ready a moment ago → nothing is written":         {in: running(is("False", time.Second)).slice("10.1.0.7", "pod"), want: "unchanged"},
		"the former pod's address, the next pod has one → the next's":    {in: starts(at("10.1.0.8")).slice("10.1.0.7", "pod-0").former(20 * time.Second), want: "10.1.0.8 Pod/pod"},
		"a pod of the same address → its own":                            {in: starts(at("10.1.0.7")).slice("10.1.0.7", "pod-0"), want: "10.1.0.7 Pod/pod"},
		"no pod yet, no slice → one without an address":                  {in: used(), want: " ShareManager/share"},
		"a pod without an address, no slice → one without an address":    {in: starts(), want: " ShareManager/share"},
		"the pod is gone → its address stays":                            {in: used().was("error").slice("10.1.0.7", "pod-0"), want: "10.1.0.7 ShareManager/share 30s", after: 30 * time.Second},
		"the next pod has no address yet → the former's stays":           {in: starts().slice("10.1.0.7", "pod-0").former(9 * time.Second), want: "unchanged", after: 9 * time.Second},
		"for too long → none":                                            {in: starts().slice("10.1.0.7", "pod-0").former(0), want: " ShareManager/share"},
		"for too long, and known → nothing is written":                   {in: starts().slice("", ""), want: "unchanged"},
		"by a clock that was ahead → not for longer":                     {in: starts().slice("10.1.0.7", "pod-0").former(time.Hour), want: "10.1.0.7 ShareManager/share 30s", after: 30 * time.Second},
		"another pod has the address by now → none":                      {in: starts().slice("10.1.0.7", "pod-0").former(9 * time.Second).with(func(in *Input) { in.AddressTaken = true }), want: " ShareManager/share"},
		"the pod ended, another pod has its address → none":              {in: running(fails).slice("10.1.0.7", "pod").with(func(in *Input) { in.AddressTaken = true }), want: " ShareManager/share"},
		"the pod ended → it stays":                                       {in: running(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }).slice("10.1.0.7", "pod"), want: "10.1.0.7 ShareManager/share 30s", after: 30 * time.Second},
		"the pod ended, and is still there much later → none":            {in: running(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }).slice("10.1.0.7", "pod").former(0), want: " ShareManager/share"},
		"that is known → nothing is written":                             {in: running(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }).slice("", ""), want: "unchanged"},
		"its node is down → it stays":                                    {in: running().slice("10.1.0.7", "pod").with(downNode), want: "10.1.0.7 ShareManager/share 30s", after: 30 * time.Second},
		"a pod that serves ends, no slice → its address":                 {in: running(deleted), want: "10.1.0.7 ShareManager/share 30s", after: 30 * time.Second},
		"a pod ends slowly → its address for longer":                     {in: running(deleted).slice("10.1.0.7", "pod").former(10 * time.Second), want: "10.1.0.7 ShareManager/share 30s", after: 30 * time.Second},
		"a pod ends, not slowly → nothing is written":                    {in: running(deleted).slice("10.1.0.7", "pod").former(20 * time.Second), want: "unchanged", after: 20 * time.Second},
		"the next pod ends, whose address was not written → its address": {in: running(deleted).slice("10.1.0.6", "pod-0").former(20 * time.Second), want: "10.1.0.7 ShareManager/share 20s", after: 20 * time.Second},
		"a pod of another → the former's stays, not its":                 {in: running(anothers).slice("10.1.0.6", "pod-0").former(9 * time.Second), want: "unchanged", after: 9 * time.Second},
		"a pod of another, no former → none":                             {in: running(anothers), want: " ShareManager/share"},
		"someone changed the address → repaired":                         {in: running().slice("192.0.2.1", "pod"), want: "10.1.0.7 Pod/pod"},
		"someone added an address → repaired":                            {in: running().slice("10.1.0.7", "pod").with(func(in *Input) { in.Slice.Endpoints = append(in.Slice.Endpoints, in.Slice.Endpoints[0]) }), want: "10.1.0.7 Pod/pod"},
		"someone added a former address → repaired":                      {in: used().slice("10.1.0.7", "pod-0").former(9 * time.Second).with(func(in *Input) { in.Slice.Endpoints = append(in.Slice.Endpoints, in.Slice.Endpoints[0]) }), want: "10.1.0.7 ShareManager/share 9s", after: 9 * time.Second},
		"someone changed the port → repaired":                            {in: running().slice("10.1.0.7", "pod").with(func(in *Input) { in.Slice.Ports = nil }), want: "10.1.0.7 Pod/pod"},
		"someone took a label away → repaired":                           {in: running().slice("10.1.0.7", "pod").with(func(in *Input) { in.Slice.Labels = nil }), want: "10.1.0.7 Pod/pod"},
		"someone added a label → it stays":                               {in: running().slice("10.1.0.7", "pod").with(func(in *Input) { in.Slice.Labels["a"] = "b" }), want: "unchanged"},

		"no workload, the pod ends → as it is":                              {in: running(deleted).unused().slice("10.1.0.7", "pod"), want: "unchanged"},
		"no workload, the pod ends whose address was not written → deleted": {in: running(deleted).unused().slice("10.1.0.6", "pod-0"), want: "deleted"},
		"someone took away whose address it is → repaired":                  {in: running().slice("10.1.0.7", "pod").with(func(in *Input) { in.Slice.Endpoints[0].TargetRef = nil }), want: "10.1.0.7 Pod/pod"},
		"that, and the pod ends → its address":                              {in: running(deleted).slice("10.1.0.7", "pod").with(func(in *Input) { in.Slice.Endpoints[0].TargetRef = nil }), want: "10.1.0.7 ShareManager/share 30s", after: 30 * time.Second},
		"an endpoint without an address, no pod → none":                     {in: used().slice("10.1.0.7", "pod-0").with(func(in *Input) { in.Slice.Endpoints[0].Addresses = nil }), want: " ShareManager/share"},
		"no workload, no pod → deleted":                                     {in: used().unused().slice("10.1.0.7", "pod-0"), want: "deleted"},
		"no workload, another's pod → deleted":                              {in: running(anothers).unused().slice("10.1.0.7", "pod-0"), want: "deleted"},
		"no workload, no slice → none":                                      {in: used().unused(), want: "unchanged"},

		"no Service yet → waits":                             {in: running().with(func(in *Input) { in.Service = nil }), want: "unchanged"},
		"another's Service → nothing leads from it to us":    {in: running().with(func(in *Input) { in.Service.OwnerReferences = nil }), want: "unchanged"},
		"another's Service now → the slice is deleted":       {in: running().slice("10.1.0.7", "pod").with(func(in *Input) { in.Service.OwnerReferences = nil }), want: "deleted"},
		"slices cannot be written → nothing is tried":        {in: running().with(func(in *Input) { in.NoSlices = true }), want: "unchanged"},
		"IPv6 first → the pod's IPv6":                        {in: running(at("10.1.0.7", "fd00::7")).with(families("IPv6", "IPv4")), want: "fd00::7 Pod/pod"},
		"IPv4 first → the pod's IPv4":                        {in: running(at("fd00::7", "10.1.0.7")).with(families("IPv4", "IPv6")), want: "10.1.0.7 Pod/pod"},
		"a Service that does not say → by its address":       {in: running(at("fd00::7", "10.1.0.7")).with(func(in *Input) { in.Service.Spec.ClusterIP = "fd01::9" }), want: "fd00::7 Pod/pod"},
		"no address of that family → none":                   {in: running().with(families("IPv6")), want: " ShareManager/share"},
		"a slice of the other family → deleted, made later":  {in: running(at("fd00::7")).slice("10.1.0.7", "pod").with(families("IPv6")), want: "deleted"},
		"a node's address that is no address → none of ours": {in: starts(at("none")), want: " ShareManager/share"},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.in.Slice.DeepCopy()
			p := Plan{}
			full := plan(tc.in.Input)
			p.DeletePod = full.DeletePod
			p.lead(tc.in.Input)
			assert.Equal(t, full.Slice, p.Slice)
			assert.Equal(t, before, tc.in.Slice, "what was given is not changed")
			assert.Equal(t, tc.want, outcome(tc.in.Input, p))
			assert.Equal(t, tc.after, p.After)
			if p.Slice == nil {
				return
			}
			assert.Equal(t, "vol", p.Slice.Labels["kubernetes.io/service-name"])
			assert.Equal(t, "share-manager.longhorn.io", p.Slice.Labels["endpointslice.kubernetes.io/managed-by"])
			assert.Equal(t, "vol", p.Slice.Labels["longhorn.io/share-manager"])
			require.Len(t, p.Slice.Ports, 1)
			assert.Equal(t, "nfs", *p.Slice.Ports[0].Name, "the name of the Service's port")
			assert.EqualValues(t, 2049, *p.Slice.Ports[0].Port)
			assert.LessOrEqual(t, len(p.Slice.Endpoints), 1, "never two")
			for _, e := range p.Slice.Endpoints {
				assert.True(t, *e.Conditions.Ready, "whatever the pod is")
				assert.Equal(t, "a", *e.NodeName)
			}
			if before != nil {
				assert.Equal(t, before.ResourceVersion, p.Slice.ResourceVersion, "a write by another leader since is a conflict")
			}
		})
	}
}

// outcome describes the plan's effect on a slice.
func outcome(in Input, p Plan) string {
	switch {
	case p.DropSlice:
		return "deleted"
	case p.Slice == nil:
		return "unchanged"
	}
	owner := p.Slice.OwnerReferences[0]
	text := fmt.Sprintf("%s %s/%s", addressIn(p.Slice), owner.Kind, owner.UID)
	var until int64
	if _, err := fmt.Sscan(p.Slice.Labels[types.LabelFormerPodUntil], &until); err == nil {
		text += " " + time.Unix(until, 0).Sub(in.Now).String()
	}
	return text
}
