package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// prefix is the prefix of all metric names of this package.
const prefix = "longhorn_"

// Family is the set of all series with one name.
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

// add creates a Family. name lacks the prefix. Labels are separated by spaces.
func (f *families) add(name, labels, help string) *Family {
	family := &Family{Name: prefix + name, Labels: strings.Fields(labels), Help: help}
	family.desc = prometheus.NewDesc(family.Name, help, family.Labels, nil)
	f.all = append(f.all, family)
	return family
}

// ours creates a Family that Longhorn does not have.
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

// NodeFamilies returns the families that each daemon exports, in the order of the documentation.
func NodeFamilies() []Family { return ofNode.list() }

// ClusterFamilies returns the families that only the leader exports.
func ClusterFamilies() []Family { return ofCluster.list() }

// series is the channel to which a Collector sends the values that it has read.
type series chan<- prometheus.Metric

// gauge sends one value. The values of the labels are in the order of the family's labels.
func (s series) gauge(f *Family, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, value, labels...)
}

// bytes sends a size.
func (s series) bytes(f *Family, value int64, labels ...string) {
	s.gauge(f, float64(value), labels...)
}

// conditions sends one series for each condition: 1 if it is True, else 0. The condition types are in lower case.
func (s series) conditions(f *Family, conditions []longhorn.Condition, labels ...string) {
	for _, c := range conditions {
		s.gauge(f, oneIf(c.Status == longhorn.ConditionTrue), with(labels, strings.ToLower(c.Type), c.Reason)...)
	}
}

// allowScheduling sends the value of spec.allowScheduling as one more condition, as Longhorn does.
func (s series) allowScheduling(f *Family, allowed bool, labels ...string) {
	s.gauge(f, oneIf(allowed), with(labels, "allowScheduling", "")...)
}

// with returns labels followed by more, in a new array.
func with(labels []string, more ...string) []string {
	return append(labels[:len(labels):len(labels)], more...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
