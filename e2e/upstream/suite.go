//go:build suite

// Names what build.sh makes of Kubernetes' own test suite, so that `go mod tidy` keeps it.
package main

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/e2e"
)
