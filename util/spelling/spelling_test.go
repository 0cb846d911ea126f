package spelling

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	known := []string{"numberOfReplicas", "share", "fsType", "dataSource", "replicaSoftAntiAffinity", "replicaZoneSoftAntiAffinity"}
	for word, want := range map[string]string{
		"numberOfReplica":          "numberOfReplicas", // a letter is missing
		"numberOfReplicass":        "numberOfReplicas", // an extra letter
		"numberOfReplicsa":         "numberOfReplicas", // two exchanged
		"nmuberOfReplicsa":         "numberOfReplicas", // twice
		"numberofreplicas":         "numberOfReplicas",
		"number-of-replicas":       "numberOfReplicas",
		"numbersOffReplica":        "", // three mistakes
		"replicaSoftAntiAfinity":   "replicaSoftAntiAffinity",
		"replicaZonesSoftAfinity":  "",
		"shared":                   "share",
		"shard":                    "share",
		"scale":                    "",
		"fsTypes":                  "fsType",
		"datasource":               "dataSource",
		"colour":                   "",
		"":                         "",
		"longhorn.io/my-own-label": "",
	} {
		assert.Equal(t, want, Nearest(word, known), word)
	}
	assert.Equal(t, "abcd", Nearest("abcx", []string{"abcd", "abce"}), "the first of two wins")
}
