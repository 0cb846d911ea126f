package alerts

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// metric is a metric as docs/METRICS.md describes it. A test of the main module compares the page with the registered
// metrics.
type metric struct{ labels []string }

func documented(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile("../../docs/METRICS.md")
	require.NoError(t, err)
	metrics := map[string]metric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(longhorn_[a-z_]+)`[ *]*\\| ([a-z_, ]*) \\|").FindAllStringSubmatch(string(text), -1) {
		metrics[row[1]] = metric{labels: strings.Split(row[2], ", ")}
	}
	require.Greater(t, len(metrics), 30, "the tables of docs/METRICS.md are not what this test reads")
	return metrics
}

// addedByPrometheus are labels that every scraped series has.
var addedByPrometheus = []string{model.MetricNameLabel, "job", "instance", "pod", "namespace", "container"}

// checkNames reports metrics and labels of selectors that are not documented.
func checkNames(metrics map[string]metric, expr string) []string {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		known, ok := metrics[selector.Name]
		if !ok {
			wrong = append(wrong, "no metric "+selector.Name)
			return nil
		}
		for _, m := range selector.LabelMatchers {
			if !slices.Contains(known.labels, m.Name) && !slices.Contains(addedByPrometheus, m.Name) {
				wrong = append(wrong, selector.Name+" has no label "+m.Name)
			}
		}
		return nil
	})
	return wrong
}

// TestCheckNames shows that the check can fail.
func TestCheckNames(t *testing.T) {
	metrics := map[string]metric{"longhorn_a": {labels: []string{"node"}}}
	assert.Empty(t, checkNames(metrics, `max by (node) (rate(longhorn_a{node="n",job="j"}[5m]))`))
	assert.Equal(t, []string{"no metric longhorn_b"}, checkNames(metrics, `longhorn_a / longhorn_b`))
	assert.Equal(t, []string{"longhorn_a has no label disk"}, checkNames(metrics, `sum(longhorn_a{disk="d"})`))
	assert.Len(t, checkNames(metrics, `sum(longhorn_a`), 1)
}

func TestRulesNameMetricsThatExist(t *testing.T) {
	metrics := documented(t)
	for name, rule := range readRules(t) {
		assert.Empty(t, checkNames(metrics, rule.Expr), name)
	}
}

// TestCasesNameMetricsThatExist: a case with a series that does not exist would prove nothing.
func TestCasesNameMetricsThatExist(t *testing.T) {
	metrics := documented(t)
	for _, c := range cases {
		for _, series := range c.series {
			selector, _, _ := strings.Cut(series, "} ")
			if strings.Contains(selector, "{") {
				selector += "}"
			} else {
				selector, _, _ = strings.Cut(selector, " ")
			}
			assert.Empty(t, checkNames(metrics, selector), "%s/%s", c.alert, c.name)
		}
	}
}

// dashboard contains the fields of Grafana's format that the test reads.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ RefID, Expr string }
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	assert.NotEmpty(t, d.Title)
	assert.NotEmpty(t, d.UID)
	metrics := documented(t)
	variables := strings.NewReplacer("$__rate_interval", "5m", "$node", ".*")
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], "%s: another panel has the id %d", p.Title, p.ID)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				assert.Empty(t, places[[2]int{x, y}], "%s covers another panel", p.Title)
				places[[2]int{x, y}] = p.Title
			}
		}
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		assert.Equal(t, p.Type == "row", len(p.Targets) == 0, "%s: a panel has queries, a row has none", p.Title)
		for _, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			assert.NotContains(t, expr, "$", "%s: a variable that the dashboard lacks", p.Title)
			assert.Empty(t, checkNames(metrics, expr), "%s %s", p.Title, target.RefID)
		}
	}
	valuesOf := regexp.MustCompile(`^label_values\((longhorn_[a-z_]+), ([a-z_]+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			match := valuesOf.FindStringSubmatch(v.Query)
			require.NotNil(t, match, "variable %s", v.Name)
			assert.Contains(t, metrics[match[1]].labels, match[2], "variable %s", v.Name)
		}
	}
}

// TestPodMonitor: it selects the pods of the DaemonSet and names a port that they have.
func TestPodMonitor(t *testing.T) {
	type selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	var monitor struct {
		Kind string
		Spec struct {
			Selector            selector
			PodMetricsEndpoints []struct{ Port, Path string } `json:"podMetricsEndpoints"`
		}
	}
	read(t, "../../deploy/monitoring/podmonitor.yaml", &monitor)
	var daemons struct {
		Kind string
		Spec struct {
			Selector selector
			Template struct {
				Spec struct {
					Containers []struct {
						Ports []struct{ Name string }
					}
				}
			}
		}
	}
	text, err := os.ReadFile("../../deploy/longhorn.yaml")
	require.NoError(t, err)
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(doc, "\nkind: DaemonSet\n") && strings.Contains(doc, "\n  name: longhorn-manager\n") {
			require.NoError(t, yaml.Unmarshal([]byte(doc), &daemons))
		}
	}
	require.Equal(t, "DaemonSet", daemons.Kind, "the daemons in deploy/longhorn.yaml")
	assert.Equal(t, "PodMonitor", monitor.Kind)
	assert.Equal(t, daemons.Spec.Selector, monitor.Spec.Selector)
	require.Len(t, monitor.Spec.PodMetricsEndpoints, 1)
	var ports []string
	for _, port := range daemons.Spec.Template.Spec.Containers[0].Ports {
		ports = append(ports, port.Name)
	}
	assert.Contains(t, ports, monitor.Spec.PodMetricsEndpoints[0].Port)
	assert.Equal(t, "/metrics", monitor.Spec.PodMetricsEndpoints[0].Path)
}

// read reads the first document of a YAML file.
func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n---\n")
	require.NoError(t, yaml.Unmarshal([]byte(first), into))
}
