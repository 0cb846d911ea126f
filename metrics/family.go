package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// prefix is that of all names here.
const prefix = "longhorn_"

// Family is all series of one name.
type Family struct {
	Name   string
	Labels []string
	Help   string
	// Ours: Longhorn has no such metric.
	Ours bool

	desc *prometheus.Desc
}

// families is one of the two sets that a Collector describes.
type families struct{ all []*Family }

// add makes a Family whose name lacks the prefix. Labels are separated by spaces.
func (f *families) add(name, labels, help string) *Family {
	family := &Family{Name: prefix + name, Labels: strings.Fields(labels), Help: help}
	family.desc = prometheus.NewDesc(family.Name, help, family.Labels, nil)
	f.all = append(f.all, family)
	return family
}

// ours makes a Family that Longhorn does not have.
func (f *families) ours(name, labels, help string) *Family {
	family := f.add(name, labels, help)
	family.Ours = true
	return family
}

func (f *families) describe(out chan<- *prometheus.Desc) {
	for _, family := range f.all {
		out <- family.desc
	}
}

func (f *families) list() []Family {
	all := make([]Family, 0, len(f.all))
	for _, family := range f.all {
		all = append(all, *family)
	}
	return all
}

// NodeFamilies are what each daemon shows, in the order of the documentation.
func NodeFamilies() []Family { return ofNode.list() }

// ClusterFamilies are what the leader shows besides.
func ClusterFamilies() []Family { return ofCluster.list() }

// series is where a Collector sends what it has read.
type series chan<- prometheus.Metric

// gauge sends one value. The values of labels stand in the order of the family's.
func (s series) gauge(f *Family, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, value, labels...)
}

// bytes sends a size.
func (s series) bytes(f *Family, value int64, labels ...string) {
	s.gauge(f, float64(value), labels...)
}

// conditions sends one series for each condition: 1 if it is True, else 0. Their types are in lower case.
func (s series) conditions(f *Family, conditions []longhorn.Condition, labels ...string) {
	for _, c := range conditions {
		s.gauge(f, oneIf(c.Status == longhorn.ConditionTrue), with(labels, strings.ToLower(c.Type), c.Reason)...)
	}
}

// allowScheduling sends what the spec allows as one more condition, as Longhorn does.
func (s series) allowScheduling(f *Family, allowed bool, labels ...string) {
	s.gauge(f, oneIf(allowed), with(labels, "allowScheduling", "")...)
}

// with is labels and more, in memory of its own.
func with(labels []string, more ...string) []string {
	return append(labels[:len(labels):len(labels)], more...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
