package handover

// candidate is a node with a daemon that could lead.
type candidate struct {
	name   string
	ready  bool
	serves bool // shares
	silent bool // it is about to be reported as down
}

// shouldLeave reports whether the leader on a node must let another daemon lead:
//
//	its node serves shares, and at most half of the other ready nodes do so, too      yes
//	its node serves none                                                              no
//	most others do as well: the next leader would probably leave, too                 no
//	no other is ready                                                                 no
//	a node is about to be reported as down: its shares would wait for the next leader no
func shouldLeave(own string, nodes []candidate) bool {
	serves, others, free := false, 0, 0
	for _, n := range nodes {
		switch {
		case n.silent:
			return false
		case n.name == own:
			serves = n.serves
		case n.ready:
			others++
			if !n.serves {
				free++
			}
		}
	}
	return serves && others > 0 && 2*free >= others
}
