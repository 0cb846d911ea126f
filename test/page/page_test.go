package page

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestLogin: a wrong token is refused, a correct one opens the page, and the logout deletes its cookie.
func TestLogin(t *testing.T) {
	b := newBench(t, cluster()...)
	b.Open(b.url + "/volumes")
	b.Has("heading", "Log in to Longhorn")
	b.Axe(root, "the login")
	b.Type("textbox", "Token", "wrong")
	b.Click("button", "Log in")
	b.Describes("textbox", "Token", "the token is not valid")
	b.Type("textbox", "Token", "reader")
	b.Click("button", "Log in")
	b.Has("link", "orders-db")
	var cookies string
	b.Evaluate("document.cookie", &cookies)
	assert.Empty(t, cookies, "no script reads the token")
	b.Click("button", "Log out")
	b.Has("heading", "Log in to Longhorn")
	b.SeesNot("Your session has ended")
}

// TestAReaderIsRefused: the page shows the API's refusal unchanged.
func TestAReaderIsRefused(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("reader")
	b.Open(b.url + "/volumes")
	b.Click("button", "Create volume")
	b.Type("textbox", "Name", "mine")
	b.Click("button", "Create")
	b.Sees(`403 Forbidden: user "system:serviceaccount:default:reader" has no right to create volumes.longhorn.io`)
	b.ExpectWrites()
}

// TestCreateVolume: the form shows its own errors, and the API's errors at the fields that they name. Then it creates a
// volume.
func TestCreateVolume(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Sees("There are no volumes yet.")
	b.Click("button", "Create volume")
	b.Axe(root, "the form of a new volume")
	b.Type("textbox", "Name", "Bad Name")
	b.Type("textbox", "Size", "ten")
	b.Describes("textbox", "Size", "must be a number with a unit")
	b.Type("textbox", "Size", "10")
	b.Describes("textbox", "Size", "must be at least 2,097,152 bytes (2 MiB)")
	b.Type("textbox", "Size", "2GB")
	b.Describes("textbox", "Size", "= 2,000,000,000 bytes, rounded up to 2,000,683,008 bytes (1.86 GiB)")
	b.Type("textbox", "Size", "2Gi")
	b.Describes("textbox", "Size", "= 2,147,483,648 bytes (2 GiB)")
	b.Click("button", "Create")
	b.Describes("textbox", "Name", `name: "Bad Name" must be a DNS label of at most 40 characters`)
	b.ExpectWrites()
	b.Type("textbox", "Name", "mine")
	b.Click("button", "Create")
	b.HasNot("dialog", "Create volume")
	b.Click("link", "mine")
	b.Has("heading", "mine")
	b.ExpectWrites("create volumes/mine")
}

// TestASizeInTheReadersLanguage: the form reads a size by the rules of the locale, or refuses it. It never reads it as
// another size.
func TestASizeInTheReadersLanguage(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.Speak("de-DE")
	b.login("admin")
	b.Click("link", "Volumes")
	b.Click("button", "Create volume")
	b.Type("textbox", "Name", "mine")
	b.Type("textbox", "Size", "1.000Gi")
	b.Describes("textbox", "Size", "must not contain a thousands separator; the decimal separator is a comma")
	b.Click("button", "Create")
	b.Type("textbox", "Size", "1,5Gi")
	b.Describes("textbox", "Size", "= 1.610.612.736 bytes (1,5 GiB)")
	b.ExpectWrites()
	b.Click("button", "Create")
	b.HasNot("dialog", "Create volume")
	v, err := b.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(t.Context(), "mine", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, longhorn.Bytes(1_610_612_736), v.Spec.Size)
}

// TestDeletingAsksForTheName: nothing is deleted before the user has typed the name.
func TestDeletingAsksForTheName(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/volumes/archive")
	b.Click("button", "Actions on archive")
	b.Click("menuitem", "Delete")
	b.Has("dialog", "Delete archive")
	b.Axe(root, "the dialog of a deletion")
	b.Click("button", "Delete permanently")
	b.Type("textbox", "Type “archive” to confirm", "archiv")
	b.Click("button", "Delete permanently")
	b.Has("dialog", "Delete archive")
	b.ExpectWrites()
	b.Type("textbox", "Type “archive” to confirm", "archive")
	b.Click("button", "Delete permanently")
	b.HasNot("dialog", "Delete archive")
	b.Has("heading", "Volumes")
	b.ExpectWrites("delete volumes/archive")
}
