package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"ringfence/internal/act/strictjson"
)

// definitionDomain separates hashes of tool definitions from all other hashes.
const definitionDomain = "tooldef/v1\x00"

// DefinitionHash returns the pin of a tool definition: hex SHA-256 over
// "tooldef/v1\0" and the canonical JSON (RFC 8785) of the whole tool object, as
// the server sent it, every member included. Definitions that differ in anything
// but white space, order of members and spelling of strings have other hashes.
func DefinitionHash(def []byte) (string, error) {
	canonical, err := strictjson.Canonical(def)
	if err != nil {
		return "", fmt.Errorf("hashing tool definition: %w", err)
	}
	if canonical[0] != '{' {
		return "", errors.New("hashing tool definition: it is not an object")
	}
	sum := sha256.Sum256(append([]byte(definitionDomain), canonical...))
	return hex.EncodeToString(sum[:]), nil
}
