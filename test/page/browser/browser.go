// Package browser drives a headless Chromium for the tests of the web page. It finds elements as users and screen
// readers do, by their role and name. It runs axe, and takes screenshots. It must know nothing of the content of the
// page.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Patience is the limit of every wait, unless Patient sets another one: the machine may be busy.
const Patience = 2 * time.Minute

// finder is a script that finds elements by role and name.
//
//go:embed finder.js
var finder string

// Browser is a single tab.
type Browser struct {
	t        testing.TB
	ctx      context.Context
	patience time.Duration

	mu        sync.Mutex
	failures  []string // guarded by mu; the browser's error messages
	tolerated string   // guarded by mu; messages with this text are ignored; empty: no message is ignored
}

// Executable returns the browser of this machine: $CHROMIUM, or chromium or google-chrome in the path. It returns an
// empty string if none is installed.
func Executable() string {
	if named := os.Getenv("CHROMIUM"); named != "" {
		return named
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// New starts a browser, which stops with the test. It accepts any certificate, because tests know their server.
func New(t testing.TB, width, height int) *Browser {
	t.Helper()
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(
		options,
		chromedp.ExecPath(Executable()), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(width, height),
		chromedp.IgnoreCertErrors, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-GB"),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(Patience),
	)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b := &Browser{t: t, ctx: ctx, patience: Patience}
	messages := chromedp.Console(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		for message, err := range messages {
			if err != nil {
				return
			}
			b.hear(message)
		}
	})
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // it may be gone
		cancel()
		end()
		reader.Wait()
	})
	b.do("start "+Executable(), chromedp.EmulateViewport(int64(width), int64(height)), chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: finder})
		return err
	}))
	return b
}

// Patient sets another limit for the waits from now on.
func (b *Browser) Patient(patience time.Duration) { b.patience = patience }

// For makes t fail when a wait fails. t is a subtest of the test that started the browser.
func (b *Browser) For(t testing.TB) { b.t = t }

// hear records errors in the page: exceptions, errors that scripts report, and violations of the content security
// policy. It ignores refused requests, because the page has to show them.
func (b *Browser) hear(m chromedp.ConsoleMessage) {
	if !m.IsException() && m.Type != chromedp.ConsoleError || m.Source == "network" || strings.HasPrefix(m.Text, "WebSocket connection to ") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tolerated != "" && strings.Contains(m.String(), b.tolerated) {
		return
	}
	b.failures = append(b.failures, m.String())
}

// Tolerate ignores errors of scripts with a text. A test that causes such errors calls it.
func (b *Browser) Tolerate(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tolerated = text
}

// ExpectNoFailures checks that no script failed, and that nothing violated the content security policy.
func (b *Browser) ExpectNoFailures() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.failures, "what the browser complained of")
}

// do runs steps, one after the other.
func (b *Browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, b.patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...), what)
}

// evaluated returns the result of a script, or of the promise that the script returns.
func evaluated[T any](b *Browser, script string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, b.patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// Open goes to a URL.
func (b *Browser) Open(url string) { b.t.Helper(); b.do("open "+url, chromedp.Navigate(url)) }

// call calls a function of finder.js until it returns something other than null. The page itself does the waiting: it
// calls less and less often, at last twice a second. If the browser has left the page for another one, call starts
// again there.
func (b *Browser) call(what, function string, args ...string) {
	b.t.Helper()
	script := fmt.Sprintf(`new Promise((done) => {
		const look = (pause) => (window.__find.%s(...%s) !== null ? done(true) : setTimeout(look, pause, Math.min(500, pause * 1.2)));
		look(30);
	})`, function, list(b.t, args))
	ctx, cancel := context.WithTimeout(b.ctx, b.patience)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if _, err = chromedp.Run(ctx, chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise)); err == nil {
			return
		}
	}
	text, _ := evaluated[string](b, "document.body.innerText")
	require.Fail(b.t, what+" did not come", "%v; the page says:\n%s", err, text)
}

// list returns words as JSON for a script.
func list(t testing.TB, words []string) string {
	t.Helper()
	encoded, err := json.Marshal(words)
	require.NoError(t, err)
	return string(encoded)
}

// Sees waits until a text is visible.
func (b *Browser) Sees(text string) { b.t.Helper(); b.call("the text "+text, "text", text) }

// SeesNot waits until a text has disappeared.
func (b *Browser) SeesNot(text string) {
	b.t.Helper()
	b.call("the end of the text "+text, "noText", text)
}

// Has waits for an element of a role (button, link, textbox, dialog, img...) and name.
func (b *Browser) Has(role, name string) {
	b.t.Helper()
	b.call(role+" "+name, "byRole", role, name)
}

// HasNot waits until no such element exists.
func (b *Browser) HasNot(role, name string) {
	b.t.Helper()
	b.call("the end of "+role+" "+name, "noRole", role, name)
}

// Describes waits until the description of an element contains a text. So a field's error is there, and a screen reader
// reads it with the field.
func (b *Browser) Describes(role, name, text string) {
	b.t.Helper()
	b.call("the text "+text+" at "+role+" "+name, "described", role, name, text)
}

// Matches waits for an element that a CSS selector selects.
func (b *Browser) Matches(selector string) { b.t.Helper(); b.call(selector, "selected", selector) }

// Value returns the content of a field.
func (b *Browser) Value(role, name string) string {
	b.t.Helper()
	b.Has(role, name)
	value, err := evaluated[string](b, "window.__find.value(..."+list(b.t, []string{role, name})+")")
	require.NoError(b.t, err)
	return value
}

// Choose opens a list and selects one of its options.
func (b *Browser) Choose(label, option string) {
	b.t.Helper()
	b.Click("button", label)
	b.Click("option", option)
	b.HasNot("option", option)
}

// Act selects an item from the menu of a button.
func (b *Browser) Act(button, item string) {
	b.t.Helper()
	b.Click("button", button)
	b.Click("menuitem", item)
}

// Expect starts to search for an element at each change of the page. came waits until the element was there, if only
// for a moment. The page must not be loaded again between the two calls.
func (b *Browser) Expect(role, name string) (came func()) {
	b.t.Helper()
	_, err := evaluated[bool](b, "window.__find.record(..."+list(b.t, []string{role, name})+")")
	require.NoError(b.t, err)
	return func() {
		b.t.Helper()
		b.call(role+" "+name+", for a moment", "recorded", role, name)
	}
}

// Click waits for an element and clicks it with the mouse.
func (b *Browser) Click(role, name string) {
	b.t.Helper()
	b.Has(role, name)
	at, err := evaluated[[]float64](b, "window.__find.centre(..."+list(b.t, []string{role, name})+")")
	require.NoError(b.t, err)
	require.Len(b.t, at, 2, "where %s %s is", role, name)
	b.do("click "+role+" "+name, chromedp.MouseClickXY(at[0], at[1]))
}

// Type replaces the content of a field by a text.
func (b *Browser) Type(role, name, text string) {
	b.t.Helper()
	b.Has(role, name)
	_, err := evaluated[bool](b, "window.__find.focus(..."+list(b.t, []string{role, name})+")")
	require.NoError(b.t, err)
	b.do("type into "+role+" "+name, chromedp.KeyEvent(text))
}

// Press presses keys, such as kb.Tab.
func (b *Browser) Press(keys string) { b.t.Helper(); b.do("press a key", chromedp.KeyEvent(keys)) }

// Evaluate runs a script, waits for its promise if it returns one, and decodes the result.
func (b *Browser) Evaluate(script string, result any) {
	b.t.Helper()
	text, err := evaluated[[]byte](b, script)
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(text, result))
}

// Dark and Light are the arguments of Prefer: the colours that the system prefers.
const (
	Dark  = "dark"
	Light = "light"
)

// Prefer sets the system's colours.
func (b *Browser) Prefer(colours string) {
	b.t.Helper()
	b.do("prefer "+colours, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	}))
}

// Speak sets the system's language, which otherwise is English.
func (b *Browser) Speak(locale string) {
	b.t.Helper()
	b.do("speak "+locale, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: locale})
		return err
	}))
}

// SetClock makes the scripts of every page that is opened later start at another time.
func (b *Browser) SetClock(at time.Time) {
	b.t.Helper()
	script := fmt.Sprintf(`{
		const now = Date.now, ahead = %d - now();
		Date.now = () => now() + ahead;
	}`, at.UnixMilli())
	b.do("set the clock", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	}))
}

// Resize sets the size of the page in pixels.
func (b *Browser) Resize(width, height int64) {
	b.t.Helper()
	b.do("resize", chromedp.EmulateViewport(width, height))
}

// Screenshot writes the visible part of the page to a PNG file.
func (b *Browser) Screenshot(path string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, b.patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path, picture, 0o644))
}

// axeSource is axe-core as npm installs it, below the root of the module.
const axeSource = "ui/node_modules/axe-core/axe.min.js"

// Axe runs axe on the page and fails the test if axe finds violations. root is the root of the module.
func (b *Browser) Axe(root, name string) {
	b.t.Helper()
	source, err := os.ReadFile(filepath.Join(root, axeSource))
	require.NoError(b.t, err, "axe-core is missing; run scripts/ui.sh check")
	// The script runs through the debugger, to which the content security policy does not apply.
	_, err = evaluated[bool](b, string(source)+"; true")
	require.NoError(b.t, err)
	var violations []string
	b.Evaluate(`axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map(
		(v) => v.id + ': ' + v.help + '\n' + v.nodes.slice(0, 5).map((n) => '  ' + n.html.slice(0, 200) + '\n  ' + n.failureSummary).join('\n')))`, &violations)
	require.Empty(b.t, violations, "axe objects to %s:\n%s", name, strings.Join(violations, "\n"))
}
