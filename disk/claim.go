package disk

import (
	"fmt"
	"math"
)

// MaxClaim is the highest claim number: what a Lease can count.
const MaxClaim = math.MaxInt32

// Lease is the cluster's record of who may use a disk UUID. The zero value: there is none.
type Lease struct {
	Exists bool
	// Holder is "<node>/<disk name>"; empty: no disk holds it.
	Holder string
	// Number counts the claims of this UUID, and is the holder's number.
	Number int64
	// Pending: the holder has not yet recorded that its UUID file carries Number. It found
	// the number From there, so its file has either.
	Pending bool
	From    int64
}

// ClaimInput is what the decision about a claim rests on.
type ClaimInput struct {
	UUID string
	Me   string // "<node>/<disk name>"
	// File is the claim number in the UUID file; 0: none, as in a file that is new, of an
	// old installation, or was put back by hand.
	File  int64
	Lease Lease
	// HolderGone: the disk that the Lease names no longer exists. A disk that is only
	// down, or not ready, is not gone.
	HolderGone bool
	// Discard is the command by which a person gives up the Lease for good.
	Discard string
}

// ClaimAction is what follows; the zero value is to refuse.
type ClaimAction int

// The actions.
const (
	// ClaimRefuse: the disk must not be used; nothing is written.
	ClaimRefuse ClaimAction = iota
	// ClaimHold: the disk may be used; there is nothing to write.
	ClaimHold
	// ClaimTake: the disk may be used once Lease and file carry Number.
	ClaimTake
)

// ClaimDecision is the outcome.
type ClaimDecision struct {
	Action ClaimAction
	Number int64 // the claim's, to hold or take
	Reason string
	Gist   string // of a refusal: a clause for people
}

// DecideClaim tells whether this node may use a disk that Match accepts, for no node sees
// the disks of another. A UUID has one holder in the cluster; its claim has a number that
// the Lease and the UUID file share, and that grows whenever the disk finds a new holder:
//
//	file's number:     none         below the Lease's  the Lease's   above
//	no Lease           take 1                                        take file+1
//	Lease: me          take n+1     old copy           hold          take file+1
//	  pending, from f  take n       f: take n          take n        take file+1
//	                                else old copy
//	Lease: another     refuse       refuse             refuse        refuse
//	  that is gone     take n+1     old copy           take n+1      take file+1
//	  gone, pending    take n+1     f: take n+1        take n+1      take file+1
//	                                else old copy
//
// The node takes a claim in three writes. Each leaves a state that the next pass
// continues, of this process or another:
//
//	          Lease                     file   a crash after this leaves
//	(before)  A n-1                     n-1    the claim with A
//	1. Lease  me n, pending from n-1    n-1    "f: take n": go on with 2
//	2. file   me n, pending from n-1    n      "take n": go on with 3
//	3. Lease  me n                      n      hold
//
// The Lease comes first, by compare-and-swap, so that of two copies of a disk only the
// winner's file is written. It says "pending", because a file below the Lease's number is
// otherwise that of an old copy: a person put back a clone or a snapshot from before the
// last claim. The disk is used only after the third write; a copy that was made later
// carries the same number, and in the very place of the original cannot be told from it. A
// file above the Lease's number means that the Lease is old: the cluster was restored from
// a backup. One more than the file's is then above all that was given out.
//
// A file without a number is no copy that matters: no disk is used before it has one,
// except those of installations that knew no claims.
func DecideClaim(in ClaimInput) ClaimDecision {
	l := in.Lease
	if l.Exists && l.Holder != in.Me && l.Holder != "" && !in.HolderGone {
		return refuse(fmt.Sprintf("duplicate UUID: disk UUID %s is claimed by disk %s, which still exists; "+
			"if the disk was moved here, remove %s first; if this is a copy of it, only one of them can be used", in.UUID, l.Holder, l.Holder))
	}
	mine := l.Exists && l.Holder == in.Me
	switch {
	case in.File > l.Number:
		return take(in, in.File+1)
	case mine && l.Pending && (in.File == l.Number || in.File == l.From || in.File == 0):
		return take(in, l.Number)
	case mine && in.File == l.Number && in.File > 0:
		return ClaimDecision{Action: ClaimHold, Number: l.Number}
	case in.File == 0 || in.File == l.Number || l.Pending && in.File == l.From:
		return take(in, l.Number+1)
	}
	return refuse(fmt.Sprintf("duplicate UUID: it is an old copy of disk UUID %s, with claim %d in %s although the last is %d, of disk %s; "+
		"mount the disk itself; only if that is lost for good, and what was written since with it: %s",
		in.UUID, in.File, ConfigFileName, l.Number, l.Holder, in.Discard))
}

func take(in ClaimInput, number int64) ClaimDecision {
	if number > MaxClaim {
		return refuse(fmt.Sprintf("disk UUID %s has been claimed %d times, and no more can be counted", in.UUID, in.Lease.Number))
	}
	return ClaimDecision{Action: ClaimTake, Number: number}
}

func refuse(gist string) ClaimDecision {
	return ClaimDecision{Reason: ReasonDuplicateUUID, Gist: gist}
}

// Refused is the verdict on an accepted disk that must not be used for the reason given;
// recorded is its UUID if one was recorded before, and is kept.
func Refused(node, name, path, recorded, reason, gist string) Verdict {
	return Verdict{UUID: recorded, Reason: reason, Message: notReadyMessage(node, name, path, gist)}
}
