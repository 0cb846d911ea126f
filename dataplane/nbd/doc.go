// Package nbd is the wire layer of the data plane. It implements the published NBD protocol: fixed newstyle handshake,
// structured replies, block status, trim, write zeroes, FUA, flush. It contains a server that calls a Backend, and a
// Client that is a Backend.
//
// The package owns framing, negotiation, request checking, limits on memory and concurrency, the authentication option
// and the error vocabulary. It must not know replicas, engines, files or Kubernetes. An Exporter turns a name into an
// Export, an Export contains a Backend, and nothing here depends on what is behind it.
//
//	client                                server
//	  |  <- NBDMAGIC IHAVEOPT flags          |
//	  |  flags ->                            |
//	  |  AUTH (empty) ->                     |  only if the export requires it, see auth.go
//	  |  <- nonce                            |
//	  |  AUTH proof, name ->                 |
//	  |  <- ACK                              |
//	  |  STRUCTURED_REPLY ->         <- ACK  |
//	  |  SET_META_CONTEXT ->   <- id,   ACK  |  base:allocation
//	  |  GO name ->      <- EXPORT ...  ACK  |  Exporter.Open happens here
//	  |======================================|
//	  |  READ WRITE FLUSH TRIM ... ->        |  any number at once, distinguished by a cookie;
//	  |          <- replies in any order     |  the server limits their number and their bytes
//	  |  DISC ->                             |  the server answers the requests it has, then closes
//
// In addition to the protocol's own requests there is one private command. With it the two ends may exchange other
// things than data: see Controller.
//
// The caller of a Client may conclude this from an error:
//
//	*Error              the server answered. A failed write may have changed any part of its range.
//	ErrNotSent          no byte of the request left this process: it has not happened and will not.
//	ErrUnknownOutcome   it may have happened, may still happen, or never will. Ask, do not assume.
//
// Not offered: the cache command, resize, extended headers, and fast zero.
package nbd
