// Package holder keeps devices in a process that does not serve them. This process, the holder, also keeps the serving
// process running.
//
//	holder   (pid 1)   FUSE descriptors, loop devices, nodes; serves no I/O; starts, reaps and replaces:
//	   │ socket pair: requests of package device, descriptors
//	serving process    engines and replicas; answers the FUSE requests; opens no loop device
//
// When the serving process dies, the holder reaps it and starts a successor, which adopts the devices. During that time
// the devices' users wait, and they see no error. Run is the holder. The serving process reaches it with Connect. Other
// processes reach a holder with Query and Replace.
//
// The holder must stay so small that it needs no replacement. It knows nothing about engines and replicas, and only the
// names of volumes.
package holder
