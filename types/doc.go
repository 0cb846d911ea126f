// Package types holds the project's vocabulary: names and how they are made,
// labels, condition types and reasons, event reasons, setting definitions and
// their parsing. A word that two packages must spell alike is spelled here.
//
// It must not know clients, informers, I/O or the wall clock.
package types
