package trust

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// TokenFile returns a function that reads a projected service account token. The function reads the file each time,
// because the kubelet replaces the token before it expires.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", fmt.Errorf("read %s: %w", path, errEmptyToken)
		}
		return token, nil
	}
}

var errEmptyToken = errors.New("the file has no token")
