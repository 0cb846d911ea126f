// Package setting keeps the Setting objects: every setting that acts exists, so that users
// find it, and each tells which value is in force. A value that is not valid is never in
// force: all readers take the last valid one, or the default (types.ValueInForce).
//
// It gives settings the values of the ConfigMap longhorn-default-setting, once for each
// version of it: what a user sets afterwards stays until the ConfigMap changes again.
//
// A setting that says how pods are made tells which pods were made with another value: they serve, and are made anew when they do not.
//
// An object of a name that this release does not know gets a status, and nothing else.
//
// The package must not know who reads settings.
package setting
