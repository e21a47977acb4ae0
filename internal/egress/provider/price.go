package provider

import (
	_ "embed"
	"fmt"
	"math"
	"strings"

	"ringfence/internal/act/strictjson"
)

// A Usage is what one or more answers used. Input leaves out what was read from or
// written to a cache; Output has the tokens of reasoning in it.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"` // of Output
	// Estimated says that the service did not say, and this is likely too much.
	Estimated bool `json:"estimated,omitempty"`
}

// Tokens is all of them, counted once.
func (u Usage) Tokens() int64 { return sum(u.Input, u.Output, u.CacheRead, u.CacheWrite) }

// sum adds without overflow: too many is the most there can be.
func sum(all ...int64) (n int64) {
	for _, v := range all {
		if v > math.MaxInt64-n {
			return math.MaxInt64
		}
		n += max(v, 0)
	}
	return n
}

// A Price is in millionths of a dollar for a million tokens, which is the same as
// millionths of a millionth of a dollar for each.
type Price struct {
	Model      string `json:"model"` // "anthropic/claude-sonnet-4": every model whose text begins so
	Input      int64  `json:"input"`
	Output     int64  `json:"output"`
	CacheRead  int64  `json:"cache_read"`
	CacheWrite int64  `json:"cache_write"`
}

//go:embed prices.json
var shippedPrices []byte

// Prices are those of models. The zero Prices know none.
type Prices struct{ all []Price }

// NewPrices returns the shipped prices and more, which go before them.
func NewPrices(more []Price) (Prices, error) {
	var own []Price
	if err := strictjson.Unmarshal(shippedPrices, &own); err != nil {
		return Prices{}, fmt.Errorf("reading the shipped prices: %w", err)
	}
	for _, p := range more {
		if p.Model == "" || min(p.Input, p.Output, p.CacheRead, p.CacheWrite) < 0 {
			return Prices{}, fmt.Errorf("price of %q: it has no model, or is below zero", p.Model)
		}
	}
	return Prices{append(append([]Price{}, more...), own...)}, nil
}

// Cost is what u comes to with a model, in millionths of a dollar, rounded up. ok is
// false if the price is not known; of prices that fit the longest text wins, and of
// equals the first.
func (p Prices) Cost(model string, u Usage) (microUSD int64, ok bool) {
	best := -1
	for i, one := range p.all {
		if strings.HasPrefix(model, one.Model) && (best < 0 || len(one.Model) > len(p.all[best].Model)) {
			best = i
		}
	}
	if best < 0 {
		return math.MaxInt64, false
	}
	one, total := p.all[best], 0.0
	for _, part := range [][2]int64{{u.Input, one.Input}, {u.Output, one.Output}, {u.CacheRead, one.CacheRead}, {u.CacheWrite, one.CacheWrite}} {
		total += float64(max(part[0], 0)) * float64(part[1]) / 1e6
	}
	if total >= math.MaxInt64/2 {
		return math.MaxInt64, true
	}
	return int64(math.Ceil(total)), true
}
