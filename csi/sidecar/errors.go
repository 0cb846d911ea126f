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

// callError is an error that the driver returned. Its text is the driver's own, without the prefix "rpc error: code =
// ... desc = " that gRPC adds, because users read it in Events and conditions. status.Code still finds the code.
type callError struct {
	status *status.Status
	text   string
}

func (e *callError) Error() string              { return e.text }
func (e *callError) GRPCStatus() *status.Status { return e.status }

// plainErrors converts each error of a call into a callError. If a call ended without the driver's answer, the error
// says so.
func plainErrors(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, conn, options...)
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	text := st.Message()
	if ctx.Err() != nil {
		text = fmt.Sprintf("%s: the driver did not answer: %s", path.Base(method), text)
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

// repeatedTexts turns a repeated failure into one Event with a count. An Event with another text than the previous one
// is another Event. The figures in a text, such as the free space, differ at each retry. So if a text differs from the
// last text for its key only in figures, it is replaced by the last one. The zero value is ready to use.
type repeatedTexts struct {
	mu   sync.Mutex
	last map[string]repeatedText
}

type repeatedText struct {
	text  string
	since time.Time
}

// figure matches a number that stands alone, with its unit. Digits within a name are not a figure.
var figure = regexp.MustCompile(`(^|[\s(=:,])\d+(\.\d+)?(%| ?[KMGTPE]i?B?)?($|[\s),;:%])`)

// withoutFigures is the common part of texts that differ only in figures.
func withoutFigures(text string) string {
	// It runs twice: of two neighbours, the first match includes the separator that the second needs.
	return figure.ReplaceAllString(figure.ReplaceAllString(text, "${1}#${4}"), "${1}#${4}")
}

// text is the text to report for a key whose latest failure has this text.
func (r *repeatedTexts) text(key, text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for k, t := range r.last { // including claims that are gone
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

// forget is called when the failed operation has succeeded.
func (r *repeatedTexts) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, key)
}
