// Package copies decides which replicas a volume has and should have, and what comes next to get there. It owns the
// state of each replica, the target, the policies that give each replica its reason, the place of each new replica,
// the balance, and the turns of rebuilds.
//
//	Facts --> StateOf --> NextStep --> Step: replicas to create, change or delete, the engine's list of replicas
//
// Only pure functions are here:
//
//	copies      the state of each replica      place       where a new replica is placed
//	record      what its spec records of it    rebuild     which one is rebuilt, and when
//	target      all decisions, with reasons    step        the next step towards the target
//	policies    which are needed, and why      balance     how evenly they are spread
//	evicted     which must leave their disk    pressure    which leave a disk that is too full
//	surplus     how many are spared for a while after the count was lowered
//
// A volume that is not served gets only its first replicas from here (PlaceFirst, PlaceAttached). Its other replicas
// stay as they are until it is served.
//
// The package must not know the API server, the other objects of a volume, or who requests that the volume is attached.
// It writes nothing and keeps nothing between two calls: package volume gathers the Facts and carries out the Step.
package copies
