package sidecar

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// callError is what the driver answered. Its text is the driver's own, without the "rpc error: code = ... desc = " that gRPC
// puts in front: people read it in Events and conditions. status.Code still finds the code.
type callError struct {
	status *status.Status
	text   string
}

func (e *callError) Error() string              { return e.text }
func (e *callError) GRPCStatus() *status.Status { return e.status }

// plainErrors makes each error of a call a callError. A call that ended without the driver's answer is named.
func plainErrors(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, conn, options...)
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	text := st.Message()
	if ctx.Err() != nil {
		text = fmt.Sprintf("%s: no answer of the driver: %s", path.Base(method), text)
	}
	return &callError{status: st, text: text}
}

// messageOf is the driver's own text of an error.
func messageOf(err error) string {
	var answered *callError
	if errors.As(err, &answered) {
		return answered.text
	}
	return status.Convert(err).Message()
}

// figuresAge is how long a message keeps its first figures. An Event lives for an hour after its count last rose.
const figuresAge = 30 * time.Minute

// repeatedTexts makes a failure that repeats one Event that counts. An Event whose text differs from the one before is another
// Event, and the figures in a text, such as the room that is left, differ at each retry. So a text that differs from
// the last one of its key in figures alone is replaced by that. The zero value is ready for use.
type repeatedTexts struct {
	mu   sync.Mutex
	last map[string]repeatedText
}

type repeatedText struct {
	text  string
	since time.Time
}

// figure is a number that stands alone, with its unit. Digits in a name are no figure.
var figure = regexp.MustCompile(`(^|[\s(=:,])\d+(\.\d+)?(%| ?[KMGTPE]i?B?)?($|[\s),;:%])`)

// withoutFigures is what two texts have in common that differ in figures alone.
func withoutFigures(text string) string {
	// Twice: of two neighbours, the first takes the separator that the second needs.
	return figure.ReplaceAllString(figure.ReplaceAllString(text, "${1}#${4}"), "${1}#${4}")
}

// text is what to report for a key whose latest failure has this text.
func (r *repeatedTexts) text(key, text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for k, t := range r.last { // of claims that are gone, too
		if now.Sub(t.since) >= figuresAge {
			delete(r.last, k)
		}
	}
	if last, ok := r.last[key]; ok && withoutFigures(last.text) == withoutFigures(text) {
		return last.text
	}
	if r.last == nil {
		r.last = map[string]repeatedText{}
	}
	r.last[key] = repeatedText{text, now}
	return text
}

// forget is called when what failed has succeeded.
func (r *repeatedTexts) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, key)
}
