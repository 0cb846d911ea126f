package api

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// act is the REST API's part of a row of testdata/acts.yaml; that file explains the fields.
type act struct {
	Act, Method, Path, Body, Judge, Policy, Kubectl, Rest, Why string
	Old, Object                                                json.RawMessage
	Objects, Params                                            []json.RawMessage
}

const restAccepts = "-"

// refusal returns the refusal that REST must answer; empty: REST accepts the act.
func (a act) refusal() string {
	switch a.Rest {
	case restAccepts:
		return ""
	case "":
		return a.Kubectl
	}
	return a.Rest
}

// denied is the API server's refusal of a deletion by a policy.
func denied(policy, text string) error {
	err := apierrors.NewForbidden(longhorn.Resource("volumes"), "v", nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Message: "ValidatingAdmissionPolicy '" + policy + "' with binding '" + policy + "' denied request: " + text,
	}}
	return err
}

// actsWithoutARow are acts of the REST API that need no row, each with the reason.
var actsWithoutARow = map[string]string{
	"POST volumes?action=salvage":          "it changes nothing: it says whether the volume comes back by itself",
	"POST volumes?action=trimFilesystem":   "it takes no data away, and kubectl has nothing like it",
	"POST volumes?action=pvCreate":         "it needs the caller's right to create the same object by kubectl",
	"POST volumes?action=snapshotCRCreate": "it takes no data away",
	"POST volumes?action=snapshotCRList":   "it changes nothing",
	"POST volumes?action=snapshotCRGet":    "it changes nothing",
	"POST volumes?action=snapshotCreate":   "it takes no data away",
	"POST volumes?action=snapshotList":     "it changes nothing",
	"POST volumes?action=snapshotGet":      "it changes nothing",
	"POST volumes?action=snapshotPurge":    "it changes nothing: replicas free the space of deleted snapshots without it",
	"POST volumes?action=snapshotCRDelete": "kubectl deletes the same object, and no policy keeps snapshots",
	"POST volumes?action=snapshotDelete":   "kubectl deletes the same object, and no policy keeps snapshots",
	"POST volumes?action=snapshotRevert":   "kubectl has nothing like it; tests of package manager have its refusals",
	"POST volumes?action=pvcCreate":        "it needs the caller's right to create the same object by kubectl",
}

// TestEveryActOfRESTHasARow: for each act the table must have the answer of kubectl.
func TestEveryActOfRESTHasARow(t *testing.T) {
	has := map[string]bool{}
	for _, a := range readActs(t) {
		path, action, isAction := strings.Cut(strings.TrimPrefix(a.Path, "/v1/"), "?action=")
		act := a.Method + " " + strings.Split(path, "/")[0]
		if isAction {
			act += "?action=" + action
		}
		has[act] = true
	}
	needs := func(act string) {
		_, isExempt := actsWithoutARow[act]
		assert.True(t, has[act] != isExempt, "%s: a row of testdata/acts.yaml, or a reason why it needs none", act)
	}
	for _, k := range kindsOf(nil) {
		for method, is := range map[string]bool{"POST": k.create != nil, "PUT": k.update != nil, "DELETE": k.remove != nil} {
			if is {
				needs(method + " " + k.path())
			}
		}
		for _, a := range k.actions {
			needs("POST " + k.path() + "?action=" + a.name)
		}
	}
}

func readActs(t *testing.T) []act {
	t.Helper()
	text, err := os.ReadFile("testdata/acts.yaml")
	require.NoError(t, err)
	var acts []act
	require.NoError(t, yaml.UnmarshalStrict(text, &acts))
	require.NotEmpty(t, acts)
	return acts
}

// TestRESTAnswersAsTheTableOfActsSays tests REST against the table that package test/policy uses for kubectl.
func TestRESTAnswersAsTheTableOfActsSays(t *testing.T) {
	for _, a := range readActs(t) {
		t.Run(a.Act, func(t *testing.T) {
			isAccepted := a.refusal() == ""
			assert.True(t, a.Judge == "none" || isAccepted == (a.Kubectl == "") || a.Why != "", "the doors differ, and the table does not say why")
			if a.Judge == "none" {
				w := do(t, newBench(t).server, a.Method, a.Path, a.Body)
				assert.Contains(t, []int{404, 405}, w.Code, w.Body)
				return
			}
			b := newBench(t)
			for _, o := range append(a.Objects, a.Params...) {
				if pv, isPV := testutil.Decode(t, o).(*corev1.PersistentVolume); isPV {
					require.NoError(t, b.workloads.Replace([]*corev1.PersistentVolume{pv}))
					continue
				}
				b.Seed(testutil.Decode(t, o))
			}
			if len(a.Old) > 0 {
				b.Seed(testutil.Decode(t, a.Old))
			}
			b.CatchUp()
			if a.Judge == "api-server" && !isAccepted {
				b.Fail("delete", "volumes", denied(a.Policy, a.Kubectl))
			}
			w := do(t, b.server, a.Method, a.Path, a.Body)
			if isAccepted {
				assert.Less(t, w.Code, 300, w.Body)
				assert.NotEmpty(t, b.Writes())
				return
			}
			e := decoded[v1.Error](t, w)
			switch {
			case a.Rest != "":
				assert.Contains(t, []int{409, 422}, w.Code)
				assert.Contains(t, e.Message, a.Rest)
			default:
				assert.Equal(t, 409, w.Code)
				assert.Equal(t, a.Kubectl, e.Message)
			}
			if a.Judge == "manager" {
				b.ExpectWrites()
			}
		})
	}
}
