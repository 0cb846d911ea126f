package alerts

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const rulesFile = "../../deploy/monitoring/alerts.yaml"

// namedLabel matches a label in the template of an annotation.
var namedLabel = regexp.MustCompile(`\$labels\.([a-z_]+)`)

// interval is the interval of scrapes and of evaluations.
const interval = time.Minute

// readRules returns the alert rules by name, as Prometheus reads them.
func readRules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	byName := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			require.NotContains(t, byName, rule.Alert, "two rules have this name")
			byName[rule.Alert] = rule
		}
	}
	return byName
}

// TestRules checks the parts that every rule must have.
func TestRules(t *testing.T) {
	for name, rule := range readRules(t) {
		assert.True(t, strings.HasPrefix(name, "Longhorn"), "%s: the name begins with Longhorn", name)
		assert.Contains(t, []string{"critical", "warning", "info"}, rule.Labels["severity"], name)
		for _, annotation := range []string{"summary", "description"} {
			assert.NotEmpty(t, rule.Annotations[annotation], "%s: %s", name, annotation)
		}
	}
}

// TestAlerts: each rule has a case in which it fires and one in which it does not.
func TestAlerts(t *testing.T) {
	byName := readRules(t)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases {
		t.Run(c.alert+"/"+c.name, func(t *testing.T) {
			rule, ok := byName[c.alert]
			require.True(t, ok, "%s has no rule %s", rulesFile, c.alert)
			assert.Equal(t, c.want, firing(t, rule, c))
		})
		if len(c.want) > 0 {
			fires[c.alert] = true
		} else {
			silent[c.alert] = true
		}
	}
	for name := range byName {
		assert.True(t, fires[name], "no case in which %s fires", name)
		assert.True(t, silent[name], "no case in which %s does not fire", name)
	}
}

// firing evaluates a rule every minute from 0 to c.at. It returns the labels of the alerts that fire then, without name
// and severity.
func firing(t *testing.T, rule rulefmt.Rule, c alertCase) []string {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load "+interval.String()+"\n  "+strings.Join(c.series, "\n  ")+"\n")
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 100000), storage)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	require.NoError(t, err)
	alerting := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for at := time.Duration(0); at <= c.at; at += interval {
		_, err := alerting.Eval(t.Context(), 0, time.UnixMilli(at.Milliseconds()).UTC(), query, nil, 0)
		require.NoError(t, err)
	}
	var found []string
	for _, alert := range alerting.ActiveAlerts() {
		if alert.State != rules.StateFiring {
			continue
		}
		found = append(found, shown(alert.Labels))
		for annotation, text := range rule.Annotations {
			for _, label := range namedLabel.FindAllStringSubmatch(text, -1) {
				assert.True(t, alert.Labels.Has(label[1]), "%s names the label %s, which the alert lacks", annotation, label[1])
			}
		}
		if claim := alert.Labels.Get("pvc"); claim != "" {
			assert.Contains(t, alert.Annotations.Get("summary"), alert.Labels.Get("pvc_namespace")+"/"+claim, "the summary must name the claim")
		}
		alert.Annotations.Range(func(l labels.Label) {
			assert.NotContains(t, l.Value, "<error", l.Name)
			assert.NotContains(t, l.Value, "<no value>", l.Name)
		})
	}
	slices.Sort(found)
	return found
}

func shown(all labels.Labels) string {
	var pairs []string
	all.Range(func(l labels.Label) {
		if l.Name != labels.AlertName && l.Name != "severity" {
			pairs = append(pairs, fmt.Sprintf("%s=%s", l.Name, l.Value))
		}
	})
	return strings.Join(pairs, " ")
}
