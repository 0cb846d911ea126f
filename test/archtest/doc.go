// Package archtest reads the source of the module. It checks which package imports which, and that pure code is pure.
// The rules are in rules.go, each with its reason. A new package needs a line there before the tests pass.
//
// It must not import any package of the project: it only reads files.
package archtest
