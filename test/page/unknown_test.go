package page

import "testing"

// TestWhatAnAccountMayNotSeeIsNotBroken: nodes that the account may not list are not shown as not ready.
func TestWhatAnAccountMayNotSeeIsNotBroken(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("guest")
	b.Sees(`Not shown: user "system:serviceaccount:default:guest" has no right to list nodes.longhorn.io`)
	b.Open(b.url + "/volumes/orders-db")
	b.Sees("Your account is not allowed to list nodes, so their state and their disks are not shown.")
	b.Sees("orders-db-r-1")
	b.SeesNot("not ready")
	b.SeesNot("disk unknown")
	b.Axe(root, "a volume without its nodes")
}

// TestDeletingAUsedVolumeIsNotOffered: the menu gives the reason, and so does the dialog for several volumes.
func TestDeletingAUsedVolumeIsNotOffered(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/volumes/orders-db")
	b.Click("button", "Actions on orders-db")
	b.Describes("menuitem", "Delete", "Not possible now: it is attached to node node-1")
	b.Matches("[role=menuitem][aria-disabled=true]")
	b.Open(b.url + "/volumes")
	b.Click("checkbox", "Select archive")
	b.Click("checkbox", "Select orders-db")
	b.Act("Actions on selected volumes", "Delete")
	b.Sees("cannot be deleted now: it is attached to node node-1")
	b.Type("textbox", "Type “delete 2 volumes” to confirm", "delete 2 volumes")
	b.Matches("button[type=submit][disabled]")
	b.ExpectWrites()
}
