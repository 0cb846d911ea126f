// Package attachment decides where a volume is attached. A user of a volume (a workload through CSI, a person through
// the API) holds a ticket in the volume's VolumeAttachment; this controller picks among the tickets. It runs on the
// leader.
//
// It owns Volume.spec.{nodeID,disableFrontend,lastAttachedBy}, which no other component writes, and
// VolumeAttachment.status.
//
//	tickets (holders)  --->  Volume.spec.nodeID  --->  Volume.status   (volume controller)
//	        ^                                               |
//	        +------------- ticket statuses <----------------+
//
// The only fact about engines and replicas that it may know is on which nodes a strict-local volume has its data. It
// must not know disks.
package attachment
