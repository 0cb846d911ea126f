// Package lostmodel explores when a new server of a share may remove the record of a client whose node seems to be dead. It walks through all orders
// of events, and finds that no order breaks an invariant (state.violation). docs/SHARES.md, "Clients that died with the node", has the rules.
//
//	state      the node and its client, the former server beside it, the successor's pod, what the leader remembers; times are ages
//	events     one indivisible step each; each may happen at any moment or never
//	rules      what is explored; each weaker rule is found to be wrong by a test
//
// The former server is on the silent node, or is cut off together with it: so the client reaches it all the time. An event that never happens stands
// for a crash or a pause. Package dataplane/membership/mutemodel has the members behind the age of the former server's last question.
package lostmodel
