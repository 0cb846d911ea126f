package share

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
)

// session is an NFSv4.1 session (RFC 8881) of a client that sends one request at a time.
type session struct {
	p        nfsclient.Prober
	client   nfsclient.Words // its number
	id       nfsclient.Words
	sequence uint32
	server   string // the server's name for itself: owner and scope
}

const (
	opLock, opOpen, opPutFH, opReclaimComplete = 12, 18, 22, 58
	noCredentials                              = 0
)

// newSession registers a client with the server.
func newSession(name string) (*session, error) {
	const opExchangeID, opCreateSession = 42, 43
	s := &session{p: nfsclient.NewProber(2049, patience)}
	r, err := s.p.Compound(context.Background(), 1, 1, nfsclient.Words{}.Put(opExchangeID).Add([]byte("verifier")).Opaque(name).Put(0, 0, 0))
	if err != nil {
		return nil, fmt.Errorf("making itself known: %w", err)
	}
	take(r, 2) // the operation, and its status
	s.client = nfsclient.Words{}.Put(r.Word(), r.Word())
	first := r.Word()
	take(r, 4) // flags, protection, and the minor number of the owner
	s.server = fmt.Sprintf("%q %q", r.Opaque(1024), r.Opaque(1024))
	channel := nfsclient.Words{}.Put(0, 1<<20, 1<<20, 4096, 16, 16, 0)
	r, err = s.p.Compound(context.Background(), 1, 1,
		nfsclient.Words{}.Put(opCreateSession).Add(s.client).Put(first, 0).Add(channel).Add(channel).Put(0x40000000, 1, noCredentials))
	if err != nil {
		return nil, fmt.Errorf("beginning a session: %w", err)
	}
	take(r, 2)
	if len(r.Rest()) < 16 {
		return nil, fmt.Errorf("there is no session: %x", r.Rest())
	}
	s.id = nfsclient.Words(r.Rest()[:16])
	return s, nil
}

// take skips words of an answer.
func take(r *nfsclient.Reader, words int) {
	for range words {
		r.Word()
	}
}

// do makes the server execute count operations, and returns their results.
func (s *session) do(count uint32, operations nfsclient.Words) (*nfsclient.Reader, error) {
	const opSequence = 53
	s.sequence++
	r, err := s.p.Compound(context.Background(), 1, count+1, nfsclient.Words{}.Put(opSequence).Add(s.id).Put(s.sequence, 0, 0, 0).Add(operations))
	if err == nil {
		take(r, 2+4+5)
	}
	return r, err
}

func (s *session) reclaimComplete() error {
	_, err := s.do(1, nfsclient.Words{}.Put(opReclaimComplete, 0))
	return err
}

// open starts an OPEN to read and write. how is the way of opening and the following words.
func (s *session) open(how ...uint32) nfsclient.Words {
	return nfsclient.Words{}.Put(opOpen, 0, 3, 0).Add(s.client).Opaque("owner").Put(how...)
}

// lock locks the whole file, with the state that an OPEN has returned.
func (s *session) lock(reclaim uint32, handle string, state []byte) error {
	const forWriting = 2
	_, err := s.do(2, nfsclient.Words{}.Put(opPutFH).Opaque(handle).
		Put(opLock, forWriting, reclaim, 0, 0, 0xffffffff, 0xffffffff, 1, 0).Add(state).Put(0).Add(s.client).Opaque("owner"))
	return err
}

// beLocker is a client that gets a lock on the file "locked" of the share vol, or reclaims the lock that it had. task
// is its name, and for a reclaim the file's handle. It returns the handle, and the server's name for itself.
func beLocker(task string) (string, error) {
	name, known, isClaim := strings.Cut(task, " ")
	s, err := newSession(name)
	if err != nil {
		return "", err
	}
	var handle string
	var state []byte
	if isClaim {
		handle, state, err = s.claim(known)
	} else {
		handle, state, err = s.create()
	}
	if err != nil {
		return "", fmt.Errorf("opening: %w", err)
	}
	reclaim := uint32(0)
	if isClaim {
		reclaim = 1
	}
	if err := s.lock(reclaim, handle, state); err != nil {
		return "", fmt.Errorf("locking: %w", err)
	}
	if isClaim {
		if err := s.reclaimComplete(); err != nil {
			return "", fmt.Errorf("having claimed all: %w", err)
		}
	}
	return fmt.Sprintf("%x %s", handle, s.server), nil
}

// create creates the file, and returns its handle and the state of the OPEN.
func (s *session) create() (string, []byte, error) {
	const opGetFH, opLookup, opPutRootFH = 10, 15, 24
	if err := s.reclaimComplete(); err != nil {
		return "", nil, err
	}
	r, err := s.do(4, nfsclient.Words{}.Put(opPutRootFH, opLookup).Opaque("vol").
		Add(s.open(1, 0, 0, 0, 0)).Opaque("locked"). // create it if it is missing, without attributes, by its name
		Put(opGetFH))
	if err != nil {
		return "", nil, err
	}
	take(r, 2+2+2)
	state := append([]byte(nil), r.Rest()[:16]...)
	take(r, 4+5+1)                   // the state, the change in the directory, flags
	take(r, int(r.Word()))           // a mask of attributes
	if kind := r.Word(); kind == 3 { // the reason for no delegation
		if why := r.Word(); why == 1 || why == 2 {
			take(r, 1)
		}
	}
	take(r, 2)
	return string(r.Opaque(128)), state, nil
}

// claim opens the file with a handle as a file that was open before.
func (s *session) claim(known string) (string, []byte, error) {
	handle, err := hex.DecodeString(known)
	if err != nil {
		return "", nil, err
	}
	r, err := s.do(2, nfsclient.Words{}.Put(opPutFH).Opaque(string(handle)).Add(s.open(0, 1, 0)))
	if err != nil {
		return "", nil, err
	}
	take(r, 2+2)
	return string(handle), append([]byte(nil), r.Rest()[:16]...), nil
}
