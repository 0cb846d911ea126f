// Package holder keeps devices in a process that serves none of them, and keeps the process that serves them running.
//
//	holder   (pid 1)   FUSE descriptors, loop devices, nodes      starts, reaps and replaces the other; serves no I/O
//	   │ socket pair: requests of package device, descriptors
//	serving process    engines and replicas; answers the FUSE requests; opens no loop device
//
// When the serving process dies, the holder reaps it and starts a successor, which adopts the devices: their users wait meanwhile and see
// no error. Run is the holder, Connect is how the serving process reaches it, Query and Replace ask a holder from outside.
//
// The holder must stay so small that it needs no replacement: it knows no engine, no replica and no volume but by name.
package holder
