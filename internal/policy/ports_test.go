package policy

import (
	"fmt"
	"testing"
)

func TestPorts(t *testing.T) {
	for text, want := range map[string]string{
		`permit (principal, action, resource);`:                                                                                                      "[80 443]",
		`permit (principal, action == Action::"connect", resource in Host::"example.com:8443");`:                                                     "[80 443 8443]",
		`permit (principal, action == Action::"fetch", resource == URL::"https://example.com:444/x");`:                                               "[80 443 444]",
		`permit (principal, action == Action::"fetch", resource in Domain::"example.com") when { resource has port && resource.port == 22 };`:        "[22 80 443]",
		`permit (principal, action == Action::"fetch", resource is URL in Domain::"example.com") when { resource has port && resource.port == 23 };`: "[23 80 443]",
		`permit (principal, action == Action::"fetch", resource in Domain::"example.com") when { resource has port && resource.port < 9 };`:          "[80 443]",
	} {
		p, err := Load([]Layer{{Text: []byte(text)}}, Binding{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(p.Ports()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
