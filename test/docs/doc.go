// Package docs reads the pages for users in the form that tests need: their blocks, links, headings and the names in
// them.
//
//	README.md, CONTRIBUTING.md, docs/*.md, docs/dataplane/*.md
//	        │
//	        └─► Page ──► docs_test.go: links, names, every command has a test
//	                 └─► test/e2e: Lives run on a cluster, an API server checks the YAML
//
// The info string of a block defines its kind: "sh" is run as it is. "yaml" is a manifest; it is a file of the reader
// if its first line names one (# demo.yaml). "text" is a picture or the output of a program. The package must not know
// how a command is run.
package docs
