package replica

import "github.com/longhorn-lep/longhorn-manager/dataplane/chain"

// The data of a replica can be a chain of layers. No release opens one yet.
var _ blocks = (*chain.Chain)(nil)
