// Package setting keeps the Setting objects: every setting exists, so that users
// find it, and each tells whether its value is in force. A value that is not valid
// is never in force: all readers take the default in its place (package types).
//
// The package must not know who reads settings.
package setting
