// Package archtest reads the source of the module and checks which package imports
// which, and that what must be pure is. The rules are in rules.go, each with its
// reason; a new package needs a line there before it builds green.
//
// It must not import any package of the project: it only reads files.
package archtest
