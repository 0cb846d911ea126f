// Package nbd is the wire layer of the data plane: the published NBD protocol (fixed newstyle handshake, structured replies,
// block status, trim, write zeroes, FUA, flush), a server that calls a Backend, and a Client that is one.
//
// It owns framing, negotiation, request checking, bounds on memory and concurrency, the authentication option and the error
// vocabulary. It must not know replicas, engines, files or Kubernetes: an Exporter turns a name into an Export, an Export carries
// a Backend, and nothing here looks behind it.
//
//	client                                server
//	  |  <- NBDMAGIC IHAVEOPT flags          |
//	  |  flags ->                            |
//	  |  AUTH (empty) ->                     |  only when the export wants it, see auth.go
//	  |  <- nonce                            |
//	  |  AUTH proof, name ->                 |
//	  |  <- ACK                              |
//	  |  STRUCTURED_REPLY ->         <- ACK  |
//	  |  SET_META_CONTEXT ->   <- id,   ACK  |  base:allocation
//	  |  GO name ->      <- EXPORT ...  ACK  |  Exporter.Open happens here
//	  |======================================|
//	  |  READ WRITE FLUSH TRIM ... ->        |  any number at once, told apart by a cookie;
//	  |          <- replies in any order     |  the server bounds how many and how many bytes
//	  |  DISC ->                             |  the server answers what it has, then closes
//
// Beside the protocol's own requests there is one private command, by which the two ends may speak of other things than bytes: see
// Controller.
//
// What a caller of Client may conclude from an error:
//
//	*Error              the server answered. A failed write may have changed any part of its range.
//	ErrNotSent          no byte of the request left this process: it has not happened and will not.
//	ErrUnknownOutcome   it may have happened, may still happen, or never will. Ask, do not assume.
//
// Not offered: the cache command, resize, extended headers, and fast zero.
package nbd
