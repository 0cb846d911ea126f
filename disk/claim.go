package disk

import (
	"fmt"
	"math"
)

// MaxClaim is the highest claim number: the maximum that a Lease can count.
const MaxClaim = math.MaxInt32

// Lease is the cluster's record of the node that may use a disk UUID. The zero value means that there is no record.
type Lease struct {
	Exists bool
	// Holder is "<node>/<disk name>"; empty if no disk holds it.
	Holder string
	// Number counts the claims of this UUID. It is also the holder's number.
	Number int64
	// Pending says that the holder has not yet recorded that its UUID file carries Number. The holder found the number
	// From in its file, so its file has either Number or From.
	Pending bool
	From    int64
}

// ClaimInput is the input of the decision about a claim.
type ClaimInput struct {
	UUID string
	Self string // "<node>/<disk name>"
	// File is the claim number in the UUID file. It is 0 if the file has none: it is new, of an old installation, or
	// was restored by hand.
	File  int64
	Lease Lease
	// HolderGone says that the disk that the Lease names no longer exists. A disk that is only down, or not ready, is
	// not gone.
	HolderGone bool
	// Discard is the command with which an administrator discards the Lease permanently.
	Discard string
}

// ClaimAction is the result of the decision. The zero value means: refuse.
type ClaimAction int

// The actions.
const (
	// ClaimRefuse: the disk must not be used; nothing is written.
	ClaimRefuse ClaimAction = iota
	// ClaimHold: the disk may be used; there is nothing to write.
	ClaimHold
	// ClaimTake: the disk may be used after Lease and file carry Number.
	ClaimTake
)

// ClaimDecision is the outcome of DecideClaim.
type ClaimDecision struct {
	Action ClaimAction
	Number int64 // the number of the claim to hold or take
	Reason string
	Cause  string // of a refusal: a clause for people
}

// DecideClaim decides whether this node may use a disk that Match accepts. The decision needs the Lease because no node
// sees the disks of another node. A UUID has one holder in the cluster. The Lease and the UUID file share the number of
// its claim. The number grows whenever the disk gets a new holder:
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
// The node takes a claim in three writes. Each leaves a state that the next pass continues, in this process or another
// one:
//
//	          Lease                     file   a crash after this leaves
//	(before)  A n-1                     n-1    the claim with A
//	1. Lease  me n, pending from n-1    n-1    "f: take n": continue with 2
//	2. file   me n, pending from n-1    n      "take n": continue with 3
//	3. Lease  me n                      n      hold
//
// The Lease comes first, by compare-and-swap, so that of two copies of a disk only the winner's file is written. It
// says "pending" because otherwise a file below the Lease's number belongs to an old copy: an administrator restored a
// clone or a snapshot from before the last claim. The disk is used only after the third write. A copy that was created
// later carries the same number. In the place of the original it cannot be distinguished from the original. A file
// above the Lease's number means that the Lease is old: the cluster was restored from a backup. The file's number plus
// one is then above all numbers that were given out.
//
// A file without a number is no copy that matters: no disk is used before it has a number. Disks of installations
// without claims are the exception.
func DecideClaim(in ClaimInput) ClaimDecision {
	l := in.Lease
	if l.Exists && l.Holder != in.Self && l.Holder != "" && !in.HolderGone {
		return refuseClaim(fmt.Sprintf("duplicate UUID: disk UUID %s is claimed by disk %s, which still exists. "+
			"If the disk was moved here, first remove disk %s from its node's spec. If this disk is a copy, only one of the two can be used", in.UUID, l.Holder, l.Holder))
	}
	isHolder := l.Exists && l.Holder == in.Self
	switch {
	case in.File > l.Number:
		return takeClaim(in, in.File+1)
	case isHolder && l.Pending && (in.File == l.Number || in.File == l.From || in.File == 0):
		return takeClaim(in, l.Number)
	case isHolder && in.File == l.Number && in.File > 0:
		return ClaimDecision{Action: ClaimHold, Number: l.Number}
	case in.File == 0 || in.File == l.Number || l.Pending && in.File == l.From:
		return takeClaim(in, l.Number+1)
	}
	return refuseClaim(fmt.Sprintf("duplicate UUID: this is an old copy of disk UUID %s: %s has claim %d, but the last claim is %d, of disk %s. "+
		"Mount the disk with the last claim instead. "+
		"Only if that disk is permanently lost, with all data written to it since, discard its claim to use this copy: %s",
		in.UUID, ConfigFileName, in.File, l.Number, l.Holder, in.Discard))
}

func takeClaim(in ClaimInput, number int64) ClaimDecision {
	if number > MaxClaim {
		return refuseClaim(fmt.Sprintf("disk UUID %s has been claimed %d times, which is the maximum; it cannot be claimed again", in.UUID, in.Lease.Number))
	}
	return ClaimDecision{Action: ClaimTake, Number: number}
}

func refuseClaim(cause string) ClaimDecision {
	return ClaimDecision{Reason: ReasonDuplicateUUID, Cause: cause}
}

// Refused returns the verdict on an accepted disk that must not be used for the given reason. recorded is its UUID, if
// one was recorded before; it stays recorded.
func Refused(node, name, path, recorded, reason, cause string) Verdict {
	return Verdict{UUID: recorded, Reason: reason, Message: notReadyMessage(node, name, path, cause)}
}
