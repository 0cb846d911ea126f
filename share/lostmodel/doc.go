// Package lostmodel explores when a new server of a share may remove the record of a client on a node that seems to be
// dead. It explores all orders of events, and shows that no order breaks an invariant (state.violation).
// docs/SHARES.md, "Clients that died with the node", has the rules.
//
//	state      the node and its client, the former server on it, the successor's pod, the leader's memory; times are ages
//	events     one indivisible step each; each may happen at any moment or never
//	rules      the explored protocol; a test shows that each weaker rule is wrong
//
// The former server is on the silent node, or is cut off together with it, so the client reaches it all the time. An
// event that never happens stands for a crash or a pause. Package dataplane/membership/partitionmodel models the
// members that determine the age of the former server's last question.
package lostmodel
