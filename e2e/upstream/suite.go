//go:build suite

// Names what build.sh builds besides, so that `go mod tidy` keeps it.
package main

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
)
