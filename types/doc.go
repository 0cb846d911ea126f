// Package types holds the project's vocabulary: names and the rules for generating them, labels, condition types and
// reasons, event reasons, the options of a volume. A word that two packages must spell alike is defined here.
//
// It must not know clients, informers, I/O or the wall clock.
package types
