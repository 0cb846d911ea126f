package explain

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestThePageKnowsTheTroubles: the web page has its own list of the conditions that are True while something is wrong.
func TestThePageKnowsTheTroubles(t *testing.T) {
	source, err := os.ReadFile("../ui/src/lib/conditions.ts")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)const troubles = \[(.*?)\];`).FindSubmatch(source)
	if list == nil {
		t.Fatal("the page has no list of troubles")
	}
	var known []string
	for _, word := range regexp.MustCompile(`'(\w+)'`).FindAllSubmatch(list[1], -1) {
		known = append(known, string(word[1]))
	}
	if want := slices.Sorted(slices.Values(troubles)); !slices.Equal(slices.Sorted(slices.Values(known)), want) {
		t.Errorf("the page knows %v, want %v", known, want)
	}
}
