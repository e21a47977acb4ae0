package main
import (
 _ "github.com/cedar-policy/cedar-go"
 _ "github.com/cedar-policy/cedar-go/x/exp/schema"
 _ "github.com/modelcontextprotocol/go-sdk/mcp"
 _ "golang.org/x/mod/sumdb/tlog"
 _ "golang.org/x/mod/sumdb/note"
 _ "golang.org/x/net/idna"
 _ "modernc.org/sqlite"
 _ "github.com/spf13/cobra"
 _ "mvdan.cc/sh/v3/syntax"
 _ "github.com/go-json-experiment/json"
)
func main(){}
