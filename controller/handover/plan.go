package handover

// candidate is a node whose daemon could lead.
type candidate struct {
	name   string
	ready  bool
	serves bool // shares
	silent bool // it is being called down
}

// shouldLeave tells whether the leader on a node is to let another daemon lead:
//
//	its node serves shares, and so does no more than half of the other ready nodes   yes
//	its node serves none                                                            no
//	most others do as well: the next leader would probably leave, too               no
//	no other is ready                                                               no
//	a node is being called down: its shares would wait for the next leader          no
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
