// Package docs reads the pages for users as tests need them: their blocks, links, headings and the names in them.
//
//	README.md, CONTRIBUTING.md, docs/*.md ──► Page ──► docs_test.go: links, names, every command has a test
//	                                               └─► test/e2e: Lives are run on a cluster, the YAML is given to an API server
//
// What a block is, its info string says: "sh" is run as it stands, "yaml" is a manifest, which is a file of the reader if its first line
// names one (# demo.yaml), "text" is a picture or what a program printed. It must not know how a command is run.
package docs
