package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act/loan"
)

// TestKeysGoWhereTheProviderIs: the key of a provider is bound to the address that the
// configuration gives it, and to no other.
func TestKeysGoWhereTheProviderIs(t *testing.T) {
	tab, err := New([]Provider{
		{Name: "anthropic", URL: "https://models.test:8443"},
		{Name: "ours", URL: "http://models.test/v1/", Variables: []string{"OUR_KEY"}},
		{Name: "google", URL: "https://g.test/x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range tab.Keyed() {
		for _, b := range p.Bindings {
			one, err := b.Canonical()
			if err != nil {
				t.Error(err)
			}
			got = append(got, p.Name+" "+p.Variables[0]+" "+one.String())
		}
	}
	want := []string{
		"anthropic ANTHROPIC_API_KEY https://models.test:8443 in X-Api-Key: {}",
		"anthropic ANTHROPIC_API_KEY https://models.test:8443 in Authorization: Bearer {}",
		"openai OPENAI_API_KEY https://api.openai.com/v1 in Authorization: Bearer {}",
		"google GOOGLE_GENERATIVE_AI_API_KEY https://g.test/x in X-Goog-Api-Key: {}",
		"google GOOGLE_GENERATIVE_AI_API_KEY https://g.test/x in Authorization: Bearer {}",
		"google GOOGLE_GENERATIVE_AI_API_KEY https://g.test/x in ?key={}",
		"openrouter OPENROUTER_API_KEY https://openrouter.ai/api/v1 in Authorization: Bearer {}",
		"openrouter OPENROUTER_API_KEY https://openrouter.ai/api/v1 in X-Api-Key: {}",
		"ours OUR_KEY http://models.test/v1 in Authorization: Bearer {}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if first := loan.Providers()[0].Bindings[0].Host; first != "api.anthropic.com" {
		t.Errorf("what is known of providers was changed: %s", first)
	}
}

// TestOverBudget: a budget is told of as the service would.
func TestOverBudget(t *testing.T) {
	for w, want := range map[Wire]string{
		Messages: `402 {"error":{"message":"why","type":"billing_error"},"type":"error"}`,
		Chat:     `429 {"error":{"code":"insufficient_quota","message":"why","type":"insufficient_quota"}}`,
		Google:   `403 {"error":{"code":403,"message":"why","status":"PERMISSION_DENIED"}}`,
	} {
		if got := fmt.Sprint(OverBudget(w), " ", string(Refusal(w, OverBudget(w), "why"))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
